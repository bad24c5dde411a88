"""A thousand events a second for one model: the newest is in force, few versions were made, nobody else waits."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

import aiohttp
import pytest

from clusters.base.objects import MODEL, MODEL_EVENT, REVISION, condition_of, generation_of
from eventing.objects.outgoing import is_outgoing
from serving.client.client import Client
from serving.client.state import LocalPlatform
from tests.faults.events.sender import Sender
from tests.platform.machine import Machine, machine
from tests.scenarios.world import infer_body
from tests.support.prober import probing
from tests.support.wait import eventually

RATE = 1000
SECONDS = 5
SENDERS = 16
MOST_VERSIONS = 8
"""A model is changed at once, and then after gaps that double from a second on."""
OTHERS_WITHIN = 2.0  # s, of 95 in 100
QUIET_EVENTS = 10
SETTLED_WITHIN = 150.0
PENDING = 500
"""Events that may wait for their effect: fewer than come, so that some are told to come later."""
NAMESPACE = "default"
JSON = {"content-type": "application/json"}


class Flood:
    """Events for the model `flooded` by one source, and a few for `quiet` by another one."""

    def __init__(self, here: Machine) -> None:
        self.here = here
        self.answers: Counter[int] = Counter()
        self.without_time: int = 0
        self.sent = 0
        self.newest = ""
        self.took: list[float] = []
        self.unready: list[int] = []
        self.client = Client(LocalPlatform.find(here.state))
        self._artifacts = [here.artifact(name) for name in ("double", "triple")]
        self._stormy = Sender.allowed(here, "/training/storm", "flooded")
        self._quiet = Sender.allowed(here, "/training/quiet", "quiet")

    async def flood(self, session: aiohttp.ClientSession) -> None:
        """As many as the machine holds, `RATE` a second at most."""
        begun = time.monotonic()

        async def send() -> None:
            while (elapsed := time.monotonic() - begun) < SECONDS:
                if self.sent > RATE * elapsed:
                    await asyncio.sleep(0.002)
                    continue
                self.sent += 1
                await self._tell(session, str(self.sent))

        await asyncio.gather(*(send() for _ in range(SENDERS)))

    async def last(self, session: aiohttp.ClientSession) -> None:
        """One more, sent until it is taken: the newest."""
        self.newest = str(self.sent + 1)
        while await self._tell(session, self.newest) != 202:  # noqa: ASYNC110 - senders have no other sign
            await asyncio.sleep(0.5)

    async def others(self, session: aiohttp.ClientSession) -> None:
        """Events for the other model, each when the one before was answered."""
        for number in range(QUIET_EVENTS):
            begun = time.monotonic()
            uri = f"file://{self._artifacts[0]}"
            body = self._quiet.event(f"q{number}", {"model": "quiet", "storageUri": uri, "version": str(number)})
            assert (await self._quiet.send(session, body))[0] == 202
            self.took.append(time.monotonic() - begun)
            await asyncio.sleep(SECONDS / QUIET_EVENTS)

    async def watch(self) -> None:
        """How many versions of the flooded model are on their way, time and again."""
        while True:
            self.unready.append(await asyncio.to_thread(self._on_their_way))
            await asyncio.sleep(0.25)

    def _on_their_way(self) -> int:
        found = self.client.list(REVISION, NAMESPACE)["items"]
        mine = [one for one in found if one["metadata"]["name"].startswith("flooded-")]
        return sum((condition_of(one, "Ready") or {}).get("status") == "Unknown" for one in mine)

    async def _tell(self, session: aiohttp.ClientSession, id: str) -> int:
        uri = f"file://{self._artifacts[int(id) % 2]}"
        body = self._stormy.event(id, {"model": "flooded", "storageUri": uri, "version": id})
        status, later = await self._stormy.send(session, body)
        self.answers[status] += 1
        self.without_time += status == 429 and not later
        return status


@pytest.mark.timeout(300)
@pytest.mark.fault("E7", shortened=f"{SECONDS} s of it")
async def test_it_is_coalesced_and_others_do_not_wait(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        settings = tmp_path / "settings.yaml"
        settings.write_text(f"events: {{pending: {PENDING}}}\n")
        ports = ("--port", str(here.port), "--control-port", str(here.control))
        await asyncio.to_thread(here.run, "up", "--detach", *ports, "--config", str(settings))
        for name in ("flooded", "quiet"):
            await asyncio.to_thread(here.run, "deploy", name, "--uri", here.artifact("double"), "--min", "1")
        flood = Flood(here)
        url = f"http://127.0.0.1:{here.port}/v2/models/quiet/infer"
        async with aiohttp.ClientSession() as session, probing(url, JSON, infer_body(1.0)) as probes:
            watching = asyncio.create_task(flood.watch())
            await asyncio.gather(flood.flood(session), flood.others(session))
            await flood.last(session)

            def settled() -> bool:
                kept = [one for one in flood.client.list(MODEL_EVENT, NAMESPACE)["items"] if not is_outgoing(one)]
                phases = {(one.get("status") or {}).get("phase", "") for one in kept}
                return not phases & {"", "Accepted"}

            await eventually(settled, SETTLED_WITHIN)
            watching.cancel()
        print(
            f"{flood.sent} events in {SECONDS} s: {dict(flood.answers)}, others {sorted(flood.took)[-1]:.3f} s at most"
        )
        assert set(flood.answers) == {202, 429}
        assert not flood.without_time
        assert sorted(flood.took)[len(flood.took) * 95 // 100 - 1] < OTHERS_WITHIN
        assert probes.failures == []
        assert max(flood.unready) <= 1
        model = flood.client.get(MODEL, "flooded", NAMESPACE)
        assert model["spec"]["version"] == flood.newest
        assert generation_of(model) <= MOST_VERSIONS
        here.run("wait", "flooded")
