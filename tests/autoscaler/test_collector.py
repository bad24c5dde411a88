"""The work of a revision, from its replicas' totals."""

from __future__ import annotations

import pytest

from autoscaler.config import Sampling
from autoscaler.metrics.collector import MetricCollector, RevisionReading, ScrapeTarget
from autoscaler.metrics.source import NoSample
from autoscaler.metrics.stat import BadSample, Sample
from clusters.base.objects import Key
from clusters.net.endpoints import Endpoint

KEY = Key("default", "magika-00001")


class ScriptedReadings:
    """A MetricSource with readings that the test sets, by Pod."""

    def __init__(self) -> None:
        self.samples: dict[str, Sample | Exception] = {}
        self.asked: list[str] = []

    def says(
        self, pod: str, at: float, busy: float, requests: float, in_flight: float = 0.0, queued: float = 0.0
    ) -> None:
        self.samples[pod] = Sample(at, busy, requests, in_flight, queued)

    async def sample(self, endpoint: Endpoint) -> Sample:
        self.asked.append(endpoint.pod)
        answer = self.samples.get(endpoint.pod, NoSample(endpoint.pod))
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        self.asked.clear()


def target(*pods: str, slots: float = 4.0) -> ScrapeTarget:
    return ScrapeTarget(tuple(Endpoint(pod, "127.0.0.1", 1, 2) for pod in pods), slots)


@pytest.fixture
def told() -> ScriptedReadings:
    return ScriptedReadings()


@pytest.fixture
def collector(told: ScriptedReadings) -> MetricCollector:
    return MetricCollector(told, Sampling())


async def read(collector: MetricCollector, wanted: ScrapeTarget) -> RevisionReading | None:
    return (await collector.read({KEY: wanted})).get(KEY)


async def test_the_first_reading_counts_what_is_in_flight(collector: MetricCollector, told: ScriptedReadings) -> None:
    told.says("a", 10.0, busy=500.0, requests=0.0, in_flight=3.0)
    assert await read(collector, target("a")) == RevisionReading(3.0, 0.0, 0.0, 0.0, busy=True, complete=True)


async def test_later_readings_count_the_difference_over_the_time_between(
    collector: MetricCollector, told: ScriptedReadings
) -> None:
    told.says("a", 10.0, busy=1.0, requests=5.0)
    await read(collector, target("a"))
    told.says("a", 12.0, busy=4.0, requests=11.0)
    assert await read(collector, target("a")) == RevisionReading(1.5, 0.0, 3.0, 6.0, busy=True, complete=True)


async def test_what_waits_inside_a_replica_at_two_readings_is_a_crowd(
    collector: MetricCollector, told: ScriptedReadings
) -> None:
    crowds = []
    for second, queued in enumerate((0.0, 6.0, 4.0, 0.0, 5.0)):
        told.says("a", 10.0 + second, busy=8.0 * second, requests=second, in_flight=2.0, queued=queued)
        told.says("b", 10.0 + second, busy=1.0 * second, requests=second, in_flight=1.0)
        reading = await read(collector, target("a", "b"))
        crowds.append(reading.crowd if reading is not None else None)
    assert crowds == [0.0, 0.0, 7.0, 0.0, 0.0]


@pytest.mark.fault("A4")
async def test_a_replica_that_lies_about_its_queue_is_a_small_crowd(
    collector: MetricCollector, told: ScriptedReadings
) -> None:
    for second in range(2):
        told.says("a", 10.0 + second, busy=8.0 * second, requests=0.0, queued=1e9)
        reading = await read(collector, target("a", slots=2.0))
    assert reading is not None and reading.crowd == 2.0 * Sampling().claim_limit


async def test_a_silence_is_made_up_by_the_next_reading(collector: MetricCollector, told: ScriptedReadings) -> None:
    told.says("a", 10.0, busy=0.0, requests=0.0)
    await read(collector, target("a"))
    told.samples["a"] = NoSample("a")
    assert await read(collector, target("a")) is None
    told.says("a", 20.0, busy=20.0, requests=9.0)
    reading = await read(collector, target("a"))
    assert reading is not None and reading.work == 2.0


async def test_a_restarted_replica_counts_as_a_new_one(collector: MetricCollector, told: ScriptedReadings) -> None:
    told.says("a", 10.0, busy=100.0, requests=50.0)
    await read(collector, target("a"))
    told.says("a", 11.0, busy=0.5, requests=1.0, in_flight=1.0)
    reading = await read(collector, target("a"))
    assert reading is not None and (reading.work, reading.busy) == (1.0, True)


async def test_nothing_served_and_nothing_in_flight_is_not_busy(
    collector: MetricCollector, told: ScriptedReadings
) -> None:
    told.says("a", 10.0, busy=7.0, requests=5.0)
    first = await read(collector, target("a"))
    assert first is not None and first.busy, "what it served before it was first read may have been just now"
    told.says("a", 11.0, busy=7.0, requests=5.0)
    second = await read(collector, target("a"))
    assert second is not None and not second.busy


@pytest.mark.fault("A4")
async def test_a_lie_is_clamped_to_a_multiple_of_the_slots(collector: MetricCollector, told: ScriptedReadings) -> None:
    told.says("a", 10.0, busy=0.0, requests=0.0)
    await read(collector, target("a"))
    told.says("a", 11.0, busy=1e9, requests=1.0)
    reading = await read(collector, target("a"))
    assert reading is not None and reading.work == 64.0


@pytest.mark.fault("A3")
async def test_a_reading_of_before_the_last_one_is_rejected_and_its_replica_missing(
    collector: MetricCollector, told: ScriptedReadings
) -> None:
    told.says("a", 10.0, busy=5.0, requests=5.0)
    await read(collector, target("a"))
    told.says("a", 9.0, busy=9.0, requests=9.0, in_flight=4.0)
    assert await read(collector, target("a")) is None
    assert collector.rejected == 1
    told.says("a", 11.0, busy=6.0, requests=6.0)
    reading = await read(collector, target("a"))
    assert reading is not None and (reading.work, reading.requests) == (1.0, 1.0)


@pytest.mark.fault("A4")
async def test_one_that_claims_far_more_than_the_others_counts_for_three_times_their_median(
    collector: MetricCollector, told: ScriptedReadings
) -> None:
    pods = ("a", "b", "c", "liar")
    for second in range(2):
        for pod, slots in zip(pods, (2.0, 3.0, 4.0, 60.0), strict=True):
            told.says(pod, 10.0 + second, busy=slots * second, requests=10.0 * second, in_flight=slots)
        reading = await read(collector, target(*pods))
    assert reading is not None
    assert (reading.work, reading.served, reading.requests) == (18.0, 18.0, 40.0)


@pytest.mark.fault("A3", "A6")
async def test_replicas_that_do_not_answer_are_missing_and_those_that_lie_rejected(
    collector: MetricCollector, told: ScriptedReadings
) -> None:
    told.says("a", 10.0, busy=0.0, requests=0.0, in_flight=2.0)
    told.samples["b"] = NoSample("b")
    told.samples["c"] = BadSample("NaN")
    reading = await read(collector, target("a", "b", "c"))
    assert reading is not None
    assert (reading.work, reading.missing, reading.complete) == (2.0, 8.0, False)
    assert (collector.unanswered, collector.rejected) == (1, 1)


async def test_no_more_than_sixteen_are_asked_in_turn_and_speak_for_all(
    collector: MetricCollector, told: ScriptedReadings
) -> None:
    pods = [f"p{number:02}" for number in range(40)]
    for pod in pods:
        told.says(pod, 10.0, busy=0.0, requests=0.0, in_flight=1.0)
    reading = await read(collector, target(*pods))
    assert len(told.asked) == 16
    assert reading is not None and reading.work == pytest.approx(40.0) and not reading.complete
    for _ in range(4):
        await read(collector, target(*pods))
    assert set(told.asked) == set(pods)


async def test_quiet_means_no_request_since_the_last_reading(
    collector: MetricCollector, told: ScriptedReadings
) -> None:
    told.says("a", 10.0, busy=1.0, requests=3.0)
    await read(collector, target("a"))
    told.says("a", 11.0, busy=1.0, requests=3.0)
    assert await collector.is_quiet(KEY, target("a").endpoints)
    told.says("a", 11.0, busy=1.0, requests=3.0, in_flight=1.0)
    assert not await collector.is_quiet(KEY, target("a").endpoints)
    told.says("a", 11.0, busy=1.1, requests=4.0)
    assert not await collector.is_quiet(KEY, target("a").endpoints)


async def test_a_replica_that_does_not_say_is_not_quiet(collector: MetricCollector, told: ScriptedReadings) -> None:
    told.samples["a"] = BadSample("NaN")
    with pytest.raises(NoSample):
        await collector.is_quiet(KEY, target("a").endpoints)
