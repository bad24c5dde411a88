"""Outcome events from a Model's outbox to the sink: order, repetition, back-off, dead letters, restarts."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from clusters.base.clock import SystemClock
from clusters.base.errors import FieldError, Invalid
from clusters.base.objects import EVENT, EVENT_SOURCE, MODEL, MODEL_EVENT, Key, Kind, Object
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.informer import Informers
from clusters.runtime.recorder import Recorder
from eventing.backoff import MOST_ATTEMPTS
from eventing.objects.model_event import make_model_event
from eventing.objects.outbox import PROGRESSED, PROMOTED, ROLLED_BACK, STARTED, OutboxEntry
from eventing.objects.outgoing import is_outgoing
from eventing.outbound.emitter import REPORTED, Emitter
from eventing.outbound.service_events import as_is, to_cdevents
from eventing.outbound.sink import NotDelivered
from tests.eventing.sink import ListedSink, ListedSpans
from tests.eventing.world import NAMESPACE, START, event_source, event_spec, event_world, model_object
from tests.support.clock import SteppedClock
from tests.support.clusters import embedded_cluster
from tests.support.loops import at_work
from tests.support.wait import eventually

BUSY = NotDelivered("the sink answered 503", again=True)
NEVER = NotDelivered("the sink answered 400", again=False)
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def entry(number: int, type: str = PROGRESSED, **fields: Any) -> OutboxEntry:
    data = {"namespace": NAMESPACE, "model": "magika", "revision": "magika-00002", "percent": 10 * number}
    known = {
        "id": f"e{number}",
        "type": type,
        "time": f"2026-01-01T00:00:{number:02d}.000Z",
        "sequence": f"{number:020d}",
        "subject": "magika-00002",
        "data": data,
    }
    return OutboxEntry(**{**known, **fields})


class World:
    """A cluster with a Model whose outbox the test fills, an emitter and its sink."""

    def __init__(self, cluster: EmbeddedCluster, clock: SteppedClock, sink: ListedSink | None, **options: Any) -> None:
        self.cluster = cluster
        self.clock = clock
        self.informers = Informers(cluster, SystemClock())
        self.informers[EVENT_SOURCE]
        self.emitter = Emitter(
            cluster, self.informers, sink=sink, clock=clock, recorder=Recorder(cluster, "tests", clock), **options
        )

    async def put(self, *entries: OutboxEntry, name: str = "magika") -> None:
        """Write the Model's outbox as the reconciler does."""
        patch = {"status": {"outbox": [one.to_json() for one in entries]}}
        await self.cluster.patch(MODEL, name, patch, NAMESPACE, manager="tests", subresource="status")

    async def events(self) -> list[Object]:
        """Return the outgoing ModelEvents."""
        return [one for one in (await self.cluster.list(MODEL_EVENT)).items if is_outgoing(one)]

    async def phases(self) -> dict[str, str]:
        """Return an outgoing event by id."""
        return {one["spec"]["id"]: one.get("status", {}).get("phase", "") for one in await self.events()}

    async def becomes(self, **phases: str) -> None:
        """Wait until these events are in these phases."""

        async def reached() -> bool:
            found = await self.phases()
            assert {one: found.get(one) for one in phases} == phases
            return True

        await eventually(reached)

    async def outbox(self) -> Any:
        """Return the outbox."""
        return (await self.cluster.get(MODEL, "magika", NAMESPACE)).get("status", {}).get("outbox")

    async def event(self, id: str) -> Object:
        """One of them."""
        return next(one for one in await self.events() if one["spec"]["id"] == id)

    async def fails(self, id: str, attempts: int) -> None:
        """Step the clock until so many attempts have failed: timers of the queue use the machine's clock."""

        async def failed(count: int) -> bool:
            return int((await self.event(id)).get("status", {}).get("attempts", 0)) == count

        await eventually(lambda: self.events())
        for number in range(1, attempts + 1):
            await eventually(lambda number=number: failed(number))  # type: ignore[misc]
            if number < attempts:
                self.later()

    def later(self) -> None:
        """Step the clock by the longest wait."""
        self.clock.step(301.0)
        self.emitter.controller.queue.add(Key(NAMESPACE, "magika"))


@contextlib.asynccontextmanager
async def world(path: Path, sink: ListedSink | None, **options: Any) -> AsyncIterator[World]:
    clock = SteppedClock(START)
    async with embedded_cluster(path / "cluster.db", clock=clock) as cluster:
        made = World(cluster, clock, sink, **options)
        with contextlib.suppress(Exception):  # the second time it is there
            await cluster.create(MODEL, model_object(), manager="tests")
        async with at_work(made.informers.run(), made.emitter.run()):
            yield made


@pytest.fixture
def sink() -> Iterator[ListedSink]:
    yield ListedSink()


async def test_entries_are_sent_in_their_order_and_leave_the_outbox(tmp_path: Path, sink: ListedSink) -> None:
    async with world(tmp_path, sink) as at:
        await at.put(entry(1, STARTED), entry(2), entry(3, PROMOTED))
        await at.becomes(e1="Applied", e2="Applied", e3="Applied")
        assert sink.ids == ["e1", "e2", "e3"]
        assert not await at.outbox()
    assert sink.closed


async def test_an_event_says_what_it_is_about_and_what_caused_it(tmp_path: Path, sink: ListedSink) -> None:
    async with world(tmp_path, sink) as at:
        await at.cluster.create(EVENT_SOURCE, event_source(), manager="tests")
        cause = event_spec(42, traceparent=TRACE, correlationid="night-run")
        await at.cluster.create(MODEL_EVENT, make_model_event(NAMESPACE, cause), manager="tests")
        await at.put(entry(1, STARTED, causationid=cause.id, causationsource=cause.source), entry(2))
        await at.becomes(e1="Applied", e2="Applied")
    first, second = sink.sent
    assert first == {
        "specversion": "1.0",
        "id": "e1",
        "source": "/apis/knodel.dev/v1alpha1/namespaces/default/models/magika",
        "type": STARTED,
        "subject": "magika-00002",
        "time": "2026-01-01T00:00:01.000Z",
        "datacontenttype": "application/json",
        "sequence": f"{1:020d}",
        "causationid": "42",
        "correlationid": "night-run",
        "traceparent": TRACE,
        "data": entry(1).data,
    }
    assert (second["correlationid"], "causationid" in second, "traceparent" in second) == ("magika-00002", False, False)


async def test_what_is_not_taken_is_tried_again_and_those_behind_it_wait(tmp_path: Path, sink: ListedSink) -> None:
    sink.failure = BUSY
    async with world(tmp_path, sink) as at:
        await at.put(entry(1), entry(2))
        await at.fails("e1", 3)
        assert sink.tries == ["e1"] * 3
        assert await at.phases() == {"e1": "Accepted", "e2": ""}
        sink.failure = None
        at.later()
        await at.becomes(e1="Applied", e2="Applied")
    assert sink.ids == ["e1", "e2"]


@pytest.mark.fault("E9")
async def test_after_its_tries_an_event_is_a_dead_letter_and_the_next_one_goes(
    tmp_path: Path, sink: ListedSink
) -> None:
    sink.refused["e1"] = BUSY
    async with world(tmp_path, sink) as at:
        await at.put(entry(1), entry(2))
        await at.fails("e1", MOST_ATTEMPTS)
        await at.becomes(e1="Failed", e2="Applied")
        dead = await at.event("e1")
        assert dead["status"]["message"] == "the sink answered 503"
        assert [one["reason"] for one in (await at.cluster.list(EVENT)).items] == ["EventNotDelivered"]

        sink.refused.clear()
        at.clock.step(1.0)
        patch = {"metadata": {"annotations": {"knodel.dev/replay": at.clock.now().isoformat()}}}
        await at.cluster.patch(MODEL_EVENT, dead["metadata"]["name"], patch, NAMESPACE, manager="tests")
        await at.becomes(e1="Applied")
    assert sink.ids == ["e2", "e1"]


async def test_what_no_repetition_helps_is_a_dead_letter_at_once(tmp_path: Path, sink: ListedSink) -> None:
    sink.refused["e1"] = NEVER
    async with world(tmp_path, sink) as at:
        await at.put(entry(1), entry(2))
        await at.becomes(e1="Failed", e2="Applied")
    assert sink.tries == ["e1", "e2"]


async def test_a_sink_that_asks_for_time_gets_it(tmp_path: Path, sink: ListedSink) -> None:
    sink.failure = NotDelivered("the sink answered 429", again=True, retry_after=120.0)
    async with world(tmp_path, sink) as at:
        await at.put(entry(1))
        await at.becomes(e1="Accepted")
        [event] = await at.events()
        assert event["status"]["retryAt"] == "2026-01-01T00:02:00Z"


async def test_a_restart_sends_what_was_kept_and_nothing_twice(tmp_path: Path, sink: ListedSink) -> None:
    sink.failure = BUSY
    async with world(tmp_path, sink) as at:
        await at.put(entry(1), entry(2))
        await at.becomes(e1="Accepted")
        await eventually(lambda: _is_empty(at))
    sink.failure = None
    async with world(tmp_path, sink) as at:
        await at.put(entry(1), entry(2), entry(3))  # killed before the first two were taken out
        at.clock.step(10.0)
        await at.becomes(e1="Applied", e2="Applied", e3="Applied")
        assert not await at.outbox()
    assert sink.ids == ["e1", "e2", "e3"]


async def _is_empty(at: World) -> bool:
    return not await at.outbox()


async def test_a_deleted_models_last_events_are_sent(tmp_path: Path, sink: ListedSink) -> None:
    async with world(tmp_path, sink) as at:
        at.emitter.outboxes.queue.add_after(Key(NAMESPACE, "magika"), 60.0)
        await at.informers[MODEL].synced()
        at.emitter._observe_model({**model_object(), "status": {"outbox": [entry(1).to_json()]}}, None)
        await at.becomes(e1="Applied")
    assert sink.ids == ["e1"]


async def test_a_model_that_is_gone_has_its_last_word_once_whoever_heard_it(tmp_path: Path, sink: ListedSink) -> None:
    async with world(tmp_path, sink, final_entries=lambda model, now: [entry(1), entry(2, ROLLED_BACK)]) as at:
        await at.informers[MODEL].synced()
        at.emitter._observe_model(model_object(), None)
        at.emitter._observe_model(model_object(), None)
        await at.becomes(e1="Applied", e2="Applied")
    assert sink.ids == ["e1", "e2"]


async def test_a_standby_forgets_last_words_that_another_one_has_told(tmp_path: Path, sink: ListedSink) -> None:
    clock = SteppedClock(START)
    async with embedded_cluster(tmp_path / "cluster.db", clock=clock) as cluster:
        said = [entry(number) for number in range(1, 4)]
        standby = World(cluster, clock, sink, final_entries=lambda model, now: [said.pop(0)])
        standby.emitter._observe_model(model_object(), None)
        clock.step(REPORTED - 1)
        standby.emitter._observe_model(model_object(), None)
        clock.step(2)
        standby.emitter._observe_model(model_object("other"), None)
        assert len([one for left in standby.emitter._deleted.values() for one in left]) == 2
        clock.step(REPORTED - 1)
        async with at_work(standby.informers.run(), standby.emitter.run()):
            await standby.becomes(e3="Applied")
    assert sink.ids == ["e3"]


async def test_what_the_store_refuses_for_good_is_told_of_and_those_behind_it_go(
    tmp_path: Path, sink: ListedSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, sink) as at:
        create = at.cluster.create

        async def strict(kind: Kind, obj: Object, **options: Any) -> Object:
            if kind is MODEL_EVENT and obj["spec"]["id"] == "e2":
                raise Invalid("ModelEvent e2", [FieldError("spec.data", "is too much")])
            return await create(kind, obj, **options)

        monkeypatch.setattr(at.cluster, "create", strict)
        await at.put(entry(1), entry(2), entry(3))
        await at.becomes(e1="Applied", e3="Applied")
        await eventually(lambda: _is_empty(at))
        [told] = [one for one in (await at.cluster.list(EVENT)).items if one["reason"] == "OutcomeEventLost"]
    assert "e2" in told["message"] and told["involvedObject"]["name"] == "magika"
    assert sink.ids == ["e1", "e3"]


async def test_without_a_sink_events_are_kept_for_the_trace_and_sent_to_nobody(tmp_path: Path) -> None:
    async with world(tmp_path, None) as at:
        await at.put(entry(1))
        await at.becomes(e1="Ignored")
        [event] = await at.events()
        assert (event["status"]["reason"], event["spec"]["data"]["data"]) == ("NoSink", entry(1).data)


async def test_cdevents_get_what_they_have_a_word_for(tmp_path: Path, sink: ListedSink) -> None:
    async with world(tmp_path, sink, translate=to_cdevents) as at:
        await at.put(entry(1, STARTED), entry(2, PROMOTED))
        await at.becomes(e1="Ignored", e2="Applied")
    [event] = sink.sent
    assert event["type"] == "dev.cdevents.service.deployed.0.2.0"


async def test_the_controller_of_what_comes_in_leaves_it_alone(tmp_path: Path, sink: ListedSink) -> None:
    async with event_world(tmp_path) as coming:
        at = World(coming.cluster, coming.clock, sink, translate=as_is)
        sink.failure = BUSY
        async with at_work(at.informers.run(), at.emitter.run()):
            await at.put(entry(1))
            await at.becomes(e1="Accepted")
            await coming.send(event_spec(1))
            await coming.becomes(e1="Applied")  # it had the time to look at both
            assert await at.phases() == {"e1": "Accepted"}


async def test_ends_of_rollouts_and_of_events_are_spans_in_the_events_trace(tmp_path: Path, sink: ListedSink) -> None:
    spans = ListedSpans()
    data = {**entry(1).data, "startedAt": "2026-01-01T00:00:00.000Z", "passed": [
        {"percent": 10, "since": "2026-01-01T00:00:00Z", "until": "2026-01-01T00:00:01Z"}
    ]}  # fmt: skip
    async with event_world(tmp_path) as coming:
        at = World(coming.cluster, coming.clock, sink, spans=spans)
        async with at_work(at.informers.run(), at.emitter.run()):
            await coming.send(event_spec(0, traceparent=TRACE))
            await coming.becomes(e0="Applied")
            await at.put(entry(1), entry(2, PROMOTED, data=data, causationid="0", causationsource="/train/magika"))
            await at.becomes(e2="Applied")
            await eventually(lambda: len(spans.spans) == 2)
    event, rollout = spans.spans
    assert (event.name, event.traceparent, rollout.name, rollout.traceparent) == (
        "event applied", TRACE, "rollout magika", TRACE,
    )  # fmt: skip
    assert (rollout.end - rollout.start).total_seconds() == 2
    assert (rollout.attributes["knodel.outcome"], [mark.name for mark in rollout.events]) == (
        "promoted",
        ["10 % passed"],
    )
