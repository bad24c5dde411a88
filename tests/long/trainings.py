"""Trainings that end and tell a platform on this machine so, each until it is heard; and what that changed."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

import aiohttp

from clusters.base.objects import CONFIGURATION, MODEL, MODEL_EVENT, Object, generation_of
from eventing.auth.signing import sign
from eventing.emit import TYPE
from eventing.objects.outgoing import is_outgoing
from serving.client.client import Client
from serving.client.state import LocalPlatform
from tests.platform.machine import Machine

SOURCE = "/training/nightly"
NAMESPACE = "default"
FORMAT = "application/cloudevents+json"
START = datetime(2026, 1, 1, tzinfo=UTC)
FACTORS = (2.0, 3.0)
"""Of the two artifacts that take turns."""
TIMEOUT = aiohttp.ClientTimeout(total=10)
LOOK_EVERY = 1.0  # s between two looks at all events
AGAIN = 0.05  # s before an event is sent again
LATER = frozenset({HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS})


class Trainings:
    """Those of `models` Models on a platform that is up; training `number` is of Model `number % models`."""

    def __init__(self, here: Machine, models: int) -> None:
        self.answers: Counter[int] = Counter()
        """By status; 0 where there was none."""
        self._here = here
        self._names = [f"m{number}" for number in range(models)]
        self._artifacts = [here.artifact(name) for name in ("double", "triple")]
        prefix = f"file://{here.folder}/"
        allowed = ("--models", "m*", "--storage-prefix", prefix, "-o", "json")
        said = json.loads(here.run("events", "allow", SOURCE, *allowed))
        [self._key] = (one["stringData"]["current"] for one in said["items"] if one["kind"] == "Secret")
        for name in self._names:
            here.run("deploy", name, "--uri", self._artifacts[0], "--min", "0")
        self._generations = {name: generation_of(here.model(name)) for name in self._names}

    async def tell(self, session: aiohttp.ClientSession, number: int) -> int:
        """Send the event once; the answer's status, 0 without one. Raises AssertionError for one that is no remedy."""
        body = json.dumps(self._event(number)).encode()
        headers = {"content-type": FORMAT, **sign(self._key, f"msg-{number}", datetime.now(UTC), body)}
        url, status = f"http://127.0.0.1:{self._here.control}/events", 0
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with session.post(url, data=body, headers=headers, timeout=TIMEOUT) as answer:
                status = answer.status
                said = await answer.text()
                assert status == HTTPStatus.ACCEPTED or (status in LATER and "retry-after" in answer.headers), said
        self.answers[status] += 1
        return status

    async def until_heard(self, session: aiohttp.ClientSession, number: int) -> None:
        """Send the event until it is acknowledged."""
        while await self.tell(session, number) != HTTPStatus.ACCEPTED:  # noqa: ASYNC110 - senders have no other sign
            await asyncio.sleep(AGAIN)

    def phases(self) -> list[tuple[int, str]]:
        """What became of each event that is kept."""
        kept = self._client().list(MODEL_EVENT, NAMESPACE)["items"]
        events = [one for one in kept if not is_outgoing(one)]
        return [(int(one["spec"]["id"]), (one.get("status") or {}).get("phase", "")) for one in events]

    async def settled(self) -> bool:
        """Whether each of them has reached its end."""
        await asyncio.sleep(LOOK_EVERY)
        return not {"", "Accepted"} & {phase for _, phase in await asyncio.to_thread(self.phases)}

    def check_effects(self, numbers: Iterable[int]) -> None:
        """Each of these had one effect, or a newer one had it in its place; the newest of each Model is in force."""
        sent, found, client = sorted(numbers), self.phases(), self._client()
        phases = dict(found)
        assert len(phases) == len(found), "an event is there twice"
        assert not set(sent) ^ set(phases)
        assert set(phases.values()) <= {"Applied", "Superseded"}
        for index, name in enumerate(self._names):
            mine = [number for number in sent if number % len(self._names) == index]
            effects = sum(phases[number] == "Applied" for number in mine)
            model = client.get(MODEL, name, NAMESPACE)
            assert generation_of(model) == self._generations[name] + effects
            revisions = generation_of(client.get(CONFIGURATION, name, NAMESPACE))
            assert 1 < revisions <= 1 + effects
            assert model["spec"]["version"] == str(mine[-1])
            self._here.run("wait", name)
            assert self._here.ask(name) == FACTORS[self._turn(mine[-1])]

    def _event(self, number: int) -> Object:
        name = self._names[number % len(self._names)]
        uri = f"file://{self._artifacts[self._turn(number)]}"
        return {
            "specversion": "1.0",
            "id": str(number),
            "source": SOURCE,
            "type": TYPE,
            "time": (START + timedelta(seconds=number)).isoformat(),
            "data": {"model": name, "storageUri": uri, "version": str(number)},
        }

    def _turn(self, number: int) -> int:
        return number // len(self._names) % 2

    def _client(self) -> Client:
        return Client(LocalPlatform.find(self._here.state))
