"""The status of an EventSource: the condition Ready, and the number of pending events."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clusters.base.clock import SystemClock
from clusters.base.errors import Forbidden, Unavailable
from clusters.base.objects import EVENT_SOURCE, MODEL_EVENT, SECRET, Key, Kind, Object, condition_of, version_of
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.informer import Informers
from eventing.auth.signing import make_secret
from eventing.controller import source_controller
from eventing.controller.source_controller import LONGEST_WAIT, READY_WAIT, SOON, EventSourceController
from eventing.controller.source_status import pending_to_report, step_of
from eventing.objects.apis import LABEL_EVENT_SOURCE
from eventing.objects.model_event import event_name, make_model_event
from tests.eventing.world import NAMESPACE, SOURCE, START, event_source, event_spec
from tests.support.clock import SteppedClock
from tests.support.clusters import embedded_cluster
from tests.support.loops import at_work
from tests.support.wait import eventually

KEY = make_secret(bytes(range(32)))
PLAIN = "a secret that somebody typed in"
ACCOUNT = "system:serviceaccount:{}:training"
TRAIN = Key(NAMESPACE, "train")


def oidc(namespace: str) -> Object:
    return {"oidc": {"issuer": "https://issuer", "audience": "knodel", "subject": ACCOUNT.format(namespace)}}


def secret(**keys: str) -> Object:
    data = {name: base64.b64encode(text.encode()).decode() for name, text in keys.items()}
    return {"metadata": {"name": "keys", "namespace": NAMESPACE}, "data": data}


class World:
    """A cluster without admission, the controller of EventSources, and access to the status."""

    def __init__(self, cluster: EmbeddedCluster, most: int) -> None:
        self.cluster = cluster
        self.clock = SteppedClock(START)
        self.informers = Informers(cluster, SystemClock())
        self.controller = EventSourceController(
            cluster, self.informers, clock=self.clock, reach=lambda of: of == "knodel-system", most=most
        )

    async def source(self) -> Object:
        return await self.cluster.get(EVENT_SOURCE, "train", NAMESPACE)

    async def ready(self) -> tuple[str, str]:
        """Return status and reason of the condition."""
        condition = condition_of(await self.source(), "Ready") or {}
        return condition.get("status", ""), condition.get("reason", "")

    async def becomes(self, status: str, reason: str) -> str:
        """Wait for status and reason; return the message."""

        async def reached() -> bool:
            assert await self.ready() == (status, reason)
            return True

        await eventually(reached)
        return str((condition_of(await self.source(), "Ready") or {})["message"])


@asynccontextmanager
async def running(folder: Path, most: int = 100, **spec: Any) -> AsyncIterator[World]:
    """Run a world with the EventSource `train`."""
    async with embedded_cluster(folder / "cluster.db") as cluster:
        world = World(cluster, most)
        await cluster.create(EVENT_SOURCE, event_source(**spec), manager="tests")
        async with at_work(world.informers.run(), world.controller.run()):
            yield world


@pytest.mark.parametrize(
    ("spec", "keys", "status", "reason", "words"),
    [
        ({}, None, "False", "SecretNotFound", "`knodel events allow /train/magika` creates one"),
        ({}, {}, "False", "KeyUnusable", "neither `current` nor `previous`"),
        ({}, {"current": " \n"}, "False", "KeyUnusable", "neither"),
        ({}, {"current": "changeme"}, "False", "KeyUnusable", "whsec_"),
        ({}, {"current": PLAIN}, "False", "KeyUnusable", "whsec_"),
        ({}, {"current": KEY}, "True", "Keys", "Secret keys"),
        ({}, {"current": "changeme", "previous": KEY}, "True", "Keys", ""),
        ({"mapping": {"preset": "mlflow"}}, {"current": PLAIN}, "True", "Keys", ""),
        ({"mapping": {"preset": "mlflow"}}, {"current": "short"}, "False", "KeyUnusable", "24"),
        ({"mapping": {"preset": "mlflow"}}, {"current": KEY}, "False", "KeyUnusable", "does not begin with whsec_"),
        ({"mapping": {"preset": "cdevents"}}, {"current": KEY}, "True", "Keys", ""),
        ({"mapping": {"preset": "none"}}, {"current": KEY}, "False", "BadMapping", "unknown preset 'none'"),
        ({"mapping": {"model": "m"}}, {"current": KEY}, "False", "BadMapping", "spec.mapping.storageUri"),
        ({"auth": {}}, {"current": KEY}, "False", "Invalid", "either hmac or oidc"),
        ({"models": ["others/*"]}, {"current": KEY}, "False", "OutOfReach", "knodel-system"),
        ({"models": ["others/*", "mine"]}, {"current": KEY}, "True", "Keys", ""),
        ({"auth": oidc(NAMESPACE)}, None, "True", "Tokens", "https://issuer"),
        ({"auth": oidc("others")}, None, "False", "SubjectElsewhere", "of another namespace"),
    ],
)
async def test_the_condition_says_what_is_in_the_way_and_what_to_do(
    tmp_path: Path, spec: Object, keys: dict[str, str] | None, status: str, reason: str, words: str
) -> None:
    async with running(tmp_path, **spec) as world:
        if keys is not None:
            await world.cluster.create(SECRET, secret(**keys), manager="tests")
            await eventually(partial(_is_asked_again, world))
        assert words in await world.becomes(status, reason)


async def test_a_secret_that_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    get = EmbeddedCluster.get

    async def refused(self: EmbeddedCluster, kind: Kind, name: str, namespace: str = "") -> Object:
        if kind is SECRET:
            raise Forbidden("not yours")
        return await get(self, kind, name, namespace)

    monkeypatch.setattr(EmbeddedCluster, "get", refused)
    async with running(tmp_path) as world:
        message = await world.becomes("Unknown", "SecretForbidden")  # the webhook may have rights of its own
        assert "not checked: `knodel events allow /train/magika` grants that" in message


async def test_nothing_is_written_that_is_said_already(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await world.becomes("False", "SecretNotFound")
        before = version_of(await world.source())
        for _ in range(3):
            await world.controller.reconcile(TRAIN)
        assert version_of(await world.source()) == before


async def test_what_is_not_ready_is_looked_at_soon_and_then_more_seldom(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await world.becomes("False", "SecretNotFound")
        waits = []
        for _ in range(4):
            waits.append(await world.controller.reconcile(TRAIN))
            world.clock.step(30)
        assert waits == [SOON, 30.0, LONGEST_WAIT, LONGEST_WAIT]
        await world.cluster.create(SECRET, secret(current=KEY), manager="tests")
        assert await world.controller.reconcile(TRAIN) == READY_WAIT
        await world.cluster.delete(EVENT_SOURCE, "train", NAMESPACE)
        await eventually(partial(_is_gone, world))
        assert await world.controller.reconcile(TRAIN) is None


async def test_events_that_wait_are_counted_when_there_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_controller, "COUNT_WAIT", 0.0)
    async with running(tmp_path) as world:
        await world.becomes("False", "SecretNotFound")
        await _record(world, 0, 9)
        assert "pending" not in (await world.source())["status"]
        await _record(world, 9, 1)
        await eventually(partial(_counts, world, 10))
        first = (await world.source())["status"]["countedAt"]
        world.clock.step(1)
        await _finish(world, 0)
        await eventually(partial(_counts, world, 9))
        second = (await world.source())["status"]["countedAt"]
        world.clock.step(1)
        for number in range(10, 20):  # as many come as go: a webhook that counts on its own learns of that too
            await _record(world, number, 1)
            await _finish(world, number)
        await world.cluster.patch(
            MODEL_EVENT, event_name(SOURCE, "1"), {"metadata": {"labels": {LABEL_EVENT_SOURCE: "other"}}}, NAMESPACE,
            manager="tests",
        )  # fmt: skip
        await eventually(partial(_is_counted_since, world, second))
        assert second > first
        await eventually(partial(_waits, world, 8))


def test_few_events_cost_no_write() -> None:
    assert pending_to_report(0, 99, 99, 100) is None
    assert pending_to_report(0, 100, 1, 100) == 100
    assert pending_to_report(0, 0, 100, 100) == 0
    assert pending_to_report(100, 99, 0, 100) == 99
    assert pending_to_report(500, 401, 0, 100) is None
    assert pending_to_report(500, 400, 0, 100) == 400


def test_that_none_wait_any_more_is_always_said() -> None:
    assert pending_to_report(99, 1, 0, 100) is None
    assert pending_to_report(99, 0, 0, 100) == 0
    assert pending_to_report(0, 0, 0, 100) is None


@pytest.mark.parametrize(("most", "step"), [(10_000, 1000), (100, 10), (1, 1)])
def test_less_than_a_webhook_lets_wait_is_told(most: int, step: int) -> None:
    assert step_of(most) == step


async def test_how_many_wait_is_told_while_the_key_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_controller, "COUNT_WAIT", 0.0)
    get = EmbeddedCluster.get

    async def failing(self: EmbeddedCluster, kind: Kind, name: str, namespace: str = "") -> Object:
        if kind is SECRET:
            raise Unavailable("the keys' keeper is away")
        return await get(self, kind, name, namespace)

    async with running(tmp_path) as world:
        await world.becomes("False", "SecretNotFound")
        monkeypatch.setattr(EmbeddedCluster, "get", failing)
        await _record(world, 0, 10)
        await eventually(partial(_counts, world, 10))
        assert await world.ready() == ("False", "SecretNotFound")
        with pytest.raises(Unavailable):
            await world.controller.reconcile(TRAIN)


async def test_event_sources_that_are_no_more_are_forgotten(tmp_path: Path) -> None:
    async with running(tmp_path, auth=oidc(NAMESPACE)) as world:
        await world.becomes("True", "Tokens")
        await _record(world, 0, 2)
        await eventually(partial(_waits, world, 2))
        await world.cluster.delete(EVENT_SOURCE, "train", NAMESPACE)
        await eventually(partial(_is_gone, world))
        await eventually(lambda: TRAIN not in world.controller._new)
        await _record(world, 2, 1)
        await eventually(partial(_waits, world, 3))
        await _finish(world, 0, 1, 2)
        await eventually(partial(_knows_none, world))


async def _record(world: World, first: int, number: int) -> None:
    made = [make_model_event(NAMESPACE, event_spec(one)) for one in range(first, first + number)]
    await world.cluster.create_all(MODEL_EVENT, made, manager="tests")


async def _finish(world: World, *numbers: int) -> None:
    for number in numbers:
        patch = {"status": {"phase": "Applied", "at": "2026-01-01T00:00:00Z"}}
        await world.cluster.patch(
            MODEL_EVENT, event_name(SOURCE, str(number)), patch, NAMESPACE, manager="tests", subresource="status"
        )


async def _is_asked_again(world: World) -> bool:
    with suppress(AssertionError):
        return bool(await world.controller.reconcile(TRAIN))
    return False


async def _is_gone(world: World) -> bool:
    return world.informers[EVENT_SOURCE].get("train", NAMESPACE) is None


async def _counts(world: World, number: int) -> bool:
    return bool((await world.source())["status"].get("pending") == number)


async def _waits(world: World, number: int) -> bool:
    return world.controller._pending[TRAIN] == number


async def _knows_none(world: World) -> bool:
    return not {*world.controller._pending, *world.controller._new}


async def _is_counted_since(world: World, first: str) -> bool:
    return bool((await world.source())["status"]["countedAt"] > first)
