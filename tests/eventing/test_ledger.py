"""The ledger and its expiry: one durable object for each event, deleted when it is old."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from clusters.base.errors import AlreadyExists, ClusterError, Forbidden, NotFound, Unavailable
from clusters.base.objects import MODEL_EVENT, Object, name_of, timestamp
from clusters.embedded.cluster import EmbeddedCluster
from clusters.net.cloudevents import Event
from clusters.runtime.informer import Informer
from eventing.controller.expiry import ModelEventExpiry, RetentionLimits, victims_of
from eventing.objects.model_event import LARGEST_DATA, EventStatus, event_name, read_model_event, validate_model_event
from eventing.objects.ports import EventSource, HmacAuth, Mapped, ModelChange, ModelRef, NewEvent, RecordResult
from eventing.objects.status import Statuses
from eventing.webhook.ledger import ModelEventLedger
from tests.eventing.world import NAMESPACE, SOURCE, START
from tests.support.clock import SteppedClock
from tests.support.clusters import embedded_cluster
from tests.support.wait import eventually

TRAIN = EventSource(NAMESPACE, "train", SOURCE, HmacAuth("keys"), ("*",))


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    """Run a cluster without admission."""
    async with embedded_cluster(tmp_path / "cluster.db", clock=SteppedClock(START)) as running:
        yield running


def entry(
    number: int, *, data: Any = None, extensions: dict[str, str] | None = None, source: str = "/foreign", **mapped: Any
) -> NewEvent:
    event = Event(id="foreign", source=source, type="t", data=data, extensions=extensions or {}, subject="s")
    known = {"model": ModelRef(NAMESPACE, "magika"), "change": ModelChange("s3://models/1")}
    return NewEvent(TRAIN, event, Mapped(str(number), SOURCE, START, **{**known, **mapped}), START)


async def events(cluster: EmbeddedCluster) -> dict[str, Object]:
    return {obj["spec"]["id"]: obj for obj in (await cluster.list(MODEL_EVENT)).items}


async def test_an_entry_is_kept_as_it_was_mapped(cluster: EmbeddedCluster) -> None:
    extensions = {"sequence": "7", "sequencetype": "Integer", "traceparent": "00-a-b-01"}
    data = {"model": "magika", "metrics": {"accuracy": 0.9}}
    kept = entry(1, data=data, extensions=extensions, source=SOURCE, metrics={"accuracy": 0.9})
    assert await ModelEventLedger(cluster).record([kept]) == [RecordResult.NEW]
    obj = (await events(cluster))["1"]
    assert name_of(obj) == event_name(SOURCE, "1")
    assert obj["metadata"]["labels"] == {"knodel.dev/event-source": "train", "knodel.dev/model": "magika"}
    spec = read_model_event(obj).spec
    assert (spec.source, spec.sequence, spec.traceparent, spec.subject) == (SOURCE, "7", "00-a-b-01", "s")
    assert spec.sequencetype == "Integer"
    assert (spec.data, spec.metrics, spec.change) == (data, {"accuracy": 0.9}, ModelChange("s3://models/1"))
    assert validate_model_event(None, obj) == []


async def test_the_sequence_of_an_event_that_is_given_another_source_orders_nothing(cluster: EmbeddedCluster) -> None:
    """Independent senders then share one source, and each has its own sequence."""
    await ModelEventLedger(cluster).record([entry(1, extensions={"sequence": "7"})])
    assert "sequence" not in (await events(cluster))["1"]["spec"]


@pytest.mark.fault("E1")
async def test_of_a_hundred_copies_at_once_one_is_taken(cluster: EmbeddedCluster) -> None:
    ledgers = [ModelEventLedger(cluster) for _ in range(4)]  # as many webhooks
    answers = await asyncio.gather(*(ledgers[number % 4].record([entry(1)]) for number in range(100)))
    assert [answer for [answer] in answers if answer is not RecordResult.DUPLICATE] == [RecordResult.NEW]
    assert len(await events(cluster)) == 1


async def test_a_copy_within_a_batch_is_one(cluster: EmbeddedCluster) -> None:
    answers = await ModelEventLedger(cluster).record([entry(1), entry(2), entry(1)])
    assert answers == [RecordResult.NEW, RecordResult.NEW, RecordResult.DUPLICATE]


async def test_events_that_come_at_one_time_have_an_order_of_arrival(cluster: EmbeddedCluster) -> None:
    ledger = ModelEventLedger(cluster)
    await ledger.record([entry(1), entry(2)])
    await ledger.record([entry(3)])
    kept = await events(cluster)
    arrivals = [read_model_event(kept[number]).spec.received_at for number in "123"]
    assert arrivals == sorted(set(arrivals))


async def test_large_data_are_left_out_and_the_change_is_kept(cluster: EmbeddedCluster) -> None:
    fits, too_large = "x" * (LARGEST_DATA - 2), "x" * (LARGEST_DATA - 1)
    await ModelEventLedger(cluster).record([entry(1, data=fits), entry(2, data=too_large)])
    kept = await events(cluster)
    assert kept["1"]["spec"]["data"] == fits
    assert "data" not in kept["2"]["spec"] and kept["2"]["spec"]["change"]


async def test_what_could_not_be_kept_is_never_called_taken(cluster: EmbeddedCluster) -> None:
    class Failing:
        async def create_all(self, *_: Any, **__: Any) -> list[Object | ClusterError]:
            return [{}, Unavailable("the disk is full")]

    taken, failed = await ModelEventLedger(Failing()).record([entry(1), entry(2)])  # type: ignore[arg-type]
    assert taken is RecordResult.NEW and isinstance(failed, Unavailable)


async def test_large_metrics_are_left_out_too(cluster: EmbeddedCluster) -> None:
    await ModelEventLedger(cluster).record([entry(1, metrics={"a": ["x" * LARGEST_DATA]}), entry(2, metrics={"a": 1})])
    kept = await events(cluster)
    assert "metrics" not in kept["1"]["spec"]
    assert kept["2"]["spec"]["metrics"] == {"a": 1}


async def test_an_id_that_was_for_another_change_or_model_is_no_copy(cluster: EmbeddedCluster) -> None:
    ledger = ModelEventLedger(cluster)
    await ledger.record([entry(1)])
    again = [entry(1, change=ModelChange("s3://models/2")), entry(1, model=ModelRef(NAMESPACE, "other")), entry(1)]
    assert await ledger.record(again) == [RecordResult.CONFLICT, RecordResult.CONFLICT, RecordResult.DUPLICATE]


async def test_a_copy_of_what_failed_says_so(cluster: EmbeddedCluster) -> None:
    await ModelEventLedger(cluster).record([entry(1)])
    await Statuses(cluster, SteppedClock(START)).write([((await events(cluster))["1"], EventStatus("Failed"))])
    assert await ModelEventLedger(cluster).record([entry(1)]) == [RecordResult.DUPLICATE_OF_FAILED]


@pytest.mark.parametrize(
    ("failure", "answer"),
    [(NotFound("it is gone"), Unavailable), (Forbidden("no"), RecordResult), (Unavailable("a"), Unavailable)],
)
async def test_an_original_that_cannot_be_read(failure: ClusterError, answer: type) -> None:
    class Blind:
        async def create_all(self, *_: Any, **__: Any) -> list[Object | ClusterError]:
            return [AlreadyExists("it is there")]

        async def get(self, *_: Any) -> Object:
            raise failure

    [recorded] = await ModelEventLedger(Blind()).record([entry(1)])  # type: ignore[arg-type]
    assert isinstance(recorded, answer) and recorded in (RecordResult.DUPLICATE, recorded)


def test_a_spec_never_changes_and_a_replay_has_a_time() -> None:
    old = {"metadata": {"name": "e"}, "spec": {"id": "1"}}
    assert [fault.path for fault in validate_model_event(old, {**old, "spec": {"id": "2"}})] == ["spec"]
    bad = {"metadata": {"name": "e", "annotations": {"knodel.dev/replay": "now"}}, "spec": {}}
    paths = [fault.path for fault in validate_model_event(None, bad)]
    assert paths == ["spec", "metadata.annotations[knodel.dev/replay]"]


async def finished(cluster: EmbeddedCluster, clock: SteppedClock, *numbers: int) -> None:
    """Record events and finish one a second."""
    for number in numbers:
        await ModelEventLedger(cluster).record([entry(number)])
        obj = (await events(cluster))[str(number)]
        await Statuses(cluster, clock).write([(obj, EventStatus("Applied"))])
        clock.step(1)


@contextlib.asynccontextmanager
async def expiry(cluster: EmbeddedCluster, clock: SteppedClock, **bounds: Any) -> AsyncIterator[ModelEventExpiry]:
    informer = Informer(cluster, MODEL_EVENT)
    made = ModelEventExpiry(cluster, informer, clock, RetentionLimits(**bounds))
    tasks = [asyncio.create_task(informer.run()), asyncio.create_task(made.run())]
    await informer.synced()
    yield made
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_finished_events_go_when_they_are_old_and_unfinished_ones_stay(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock(START)
    await finished(cluster, clock, 1, 2)
    await ModelEventLedger(cluster).record([entry(3)])
    async with expiry(cluster, clock, lifetime=timedelta(seconds=10)) as expiring:
        await expiring.expire()
        assert len(await events(cluster)) == 3
        clock.step(9.5)
        await expiring.expire()
        assert sorted(await events(cluster)) == ["2", "3"]
        clock.step(60)  # the period of its own looks

        async def gone() -> bool:
            return sorted(await events(cluster)) == ["3"]

        await eventually(gone)


async def test_of_too_many_the_oldest_go_at_once(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock(START)
    async with expiry(cluster, clock, most=3, slack=2, recent=timedelta(0)):
        await finished(cluster, clock, *range(6))

        async def cut() -> bool:
            left = (await events(cluster)).keys()
            return left.isdisjoint({"0", "1"}) and left >= {"3", "4", "5"}

        await eventually(cut)


def gone(number: int, phase: str, minutes: float = 60, *, sender: str = "train", source: str = SOURCE) -> Object:
    """Return an event that finished `minutes` ago."""
    metadata = {"name": f"e{number}", "namespace": NAMESPACE, "labels": {"knodel.dev/event-source": sender}}
    at = timestamp(START - timedelta(minutes=minutes))
    return {"metadata": metadata, "spec": {"source": source}, "status": {"phase": phase, "at": at}}


def names(*finished: Object, **bounds: Any) -> list[str]:
    return sorted(
        name_of(obj)
        for obj in victims_of(finished, START, RetentionLimits(**{"most": 2, "failed": 1, "cap": 4, **bounds}))
    )


def test_one_event_source_costs_no_other_its_records() -> None:
    flood = [gone(number, "Applied", 60 - number) for number in range(5)]
    assert names(gone(9, "Applied", 600, sender="other"), *flood) == ["e0", "e1", "e2"]


def test_ignored_ones_go_first_and_then_superseded_ones() -> None:
    assert names(gone(1, "Applied", 90), gone(2, "Superseded", 60), gone(3, "Ignored", 1)) == ["e3"]
    assert names(gone(1, "Applied", 90), gone(2, "Superseded", 60), gone(3, "Applied", 50)) == ["e2"]


def test_failed_ones_stay_whatever_else_comes_and_are_bounded_by_themselves() -> None:
    others = [gone(number, "Applied") for number in (1, 2)]
    assert names(gone(3, "Failed", 600), *others) == []
    assert names(gone(3, "Failed", 600), gone(4, "Failed", 500), *others) == ["e3"]


def test_what_a_copy_may_still_come_of_stays_up_to_the_cap() -> None:
    recent = [gone(number, "Applied", 9 - number) for number in range(4)]
    assert names(*recent) == []
    assert names(*recent, gone(4, "Applied", 0)) == ["e0"]
    assert names(*recent, gone(4, "Applied", 11)) == ["e4"]


def test_records_of_jobs_stay_as_long_as_jobs_are_looked_for() -> None:
    jobs = [gone(number, "Applied", 5000, source="/apis/jobs") for number in range(3)]
    assert names(*jobs) == []
    assert names(*jobs, gone(5, "Applied", 60)) == ["e5"]
    assert names(gone(1, "Applied", 60 * 24 * 8, source="/apis/jobs")) == ["e1"]
