"""Recent response times, from totals of responses by bucket."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.config import Sampling
from autoscaler.metrics import response_latency
from autoscaler.metrics.collector import MetricCollector, RevisionReading, ScrapeTarget
from autoscaler.metrics.response_latency import (
    ENOUGH,
    LONGEST,
    LatencyTotals,
    RecentLatencies,
    parse_latency_totals,
    quantile_of,
    upper_edge,
)
from autoscaler.metrics.source import NoSample
from autoscaler.metrics.stat import BadSample, Sample
from clusters.base import latency_buckets as latency
from clusters.base.objects import Key
from clusters.net.endpoints import Endpoint

KEY = Key("default", "magika-00001")
FAST, SLOW = latency.bucket_of(0.1), latency.bucket_of(2.0)


def test_the_buckets_are_those_that_the_server_counts_in() -> None:
    assert (latency.bucket_of(latency.LEAST), latency.bucket_of(latency.MOST)) == (
        response_latency.LEAST,
        response_latency.MOST,
    )
    for bucket in (response_latency.LEAST, FAST, 0, SLOW, response_latency.MOST):
        assert upper_edge(bucket) == latency.upper_edge(bucket)


@given(st.lists(st.floats(1e-5, 1e3), min_size=1, max_size=200), st.sampled_from([0.5, 0.95, 1.0]))
def test_a_quantile_is_that_of_the_answers_rounded_up_to_a_bucket(seconds: list[float], quantile: float) -> None:
    exact = sorted(seconds)[math.ceil(quantile * len(seconds)) - 1]
    found = quantile_of(Counter(map(latency.bucket_of, seconds)), quantile)
    assert exact * (1 - 1e-9) <= found <= exact * 2 ** (1 / 8) * (1 + 1e-9)


def test_of_no_answers_there_is_no_quantile() -> None:
    assert math.isnan(quantile_of({}))


def page(process: str = "p", requests: int | None = None, **latency: int) -> bytes:
    counts = {name.removeprefix("b").replace("_", "-"): count for name, count in latency.items()}
    said = {"revision": "m", "process": process, "errors": 0, "latency": counts}
    return json.dumps(said | {"requests": sum(latency.values()) if requests is None else requests}).encode()


def test_a_page_is_read() -> None:
    assert parse_latency_totals(page(b3=2, b_27=5)) == LatencyTotals("p", {3: 2, -27: 5}, 7)


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b"\xff", page(b999=1), page(b3=-1), page(b3=10**16), page("p" * 300), b"[" * 100_000]
)
def test_what_is_no_page_is_refused(body: bytes) -> None:
    with pytest.raises(BadSample):
        parse_latency_totals(body)


class Replica:
    """A process that counts its responses."""

    def __init__(self, process: str = "p") -> None:
        self.process = process
        self.counts: Counter[int] = Counter()

    def answer(self, bucket: int, times: int) -> Replica:
        self.counts[bucket] += times
        return self

    def page(self) -> LatencyTotals:
        return LatencyTotals(self.process, dict(self.counts))


def add(latencies: RecentLatencies, now: float, **replicas: Replica) -> tuple[float, int]:
    pages: Mapping[str, LatencyTotals] = {pod: replica.page() for pod, replica in replicas.items()}
    return latencies.add(KEY, pages, frozenset(replicas), now)


def test_what_was_answered_before_the_first_page_is_not_counted() -> None:
    latencies, replica = RecentLatencies(), Replica().answer(SLOW, 50)
    seconds, count = add(latencies, 0.0, a=replica)
    assert math.isnan(seconds) and count == 0
    assert add(latencies, 1.0, a=replica.answer(FAST, 30)) == (upper_edge(FAST), 30)


def test_replicas_are_counted_together() -> None:
    latencies, one, other = RecentLatencies(), Replica("p"), Replica("q")
    add(latencies, 0.0, a=one, b=other)
    assert add(latencies, 1.0, a=one.answer(FAST, 18), b=other.answer(SLOW, 2)) == (upper_edge(SLOW), 20)


def test_a_process_that_is_another_begins_anew() -> None:
    latencies, replica = RecentLatencies(), Replica("p").answer(FAST, 5)
    add(latencies, 0.0, a=replica)
    assert add(latencies, 1.0, a=Replica("q").answer(SLOW, 40))[1] == 0


def test_a_silence_is_made_up_by_the_next_page() -> None:
    latencies, replica = RecentLatencies(), Replica()
    add(latencies, 0.0, a=replica)
    latencies.add(KEY, {}, frozenset({"a"}), 1.0)
    assert add(latencies, 2.0, a=replica.answer(FAST, 7))[1] == 7


def test_at_many_requests_only_the_latest_count() -> None:
    latencies, replica = RecentLatencies(), Replica()
    add(latencies, 0.0, a=replica)
    add(latencies, 1.0, a=replica.answer(SLOW, ENOUGH))
    assert add(latencies, 2.0, a=replica.answer(FAST, ENOUGH)) == (upper_edge(FAST), ENOUGH)


def test_at_few_requests_those_of_a_minute_count() -> None:
    latencies, replica = RecentLatencies(), Replica()
    add(latencies, 0.0, a=replica)
    add(latencies, 1.0, a=replica.answer(SLOW, 3))
    assert add(latencies, LONGEST, a=replica.answer(FAST, 1)) == (upper_edge(SLOW), 4)
    assert add(latencies, LONGEST + 1.0, a=replica) == (upper_edge(FAST), 1)
    assert add(latencies, 2 * LONGEST + 1.0, a=replica)[1] == 0


def test_what_was_answered_before_more_replicas_came_says_nothing_of_them() -> None:
    latencies, one, other = RecentLatencies(), Replica("p"), Replica("q")
    add(latencies, 0.0, a=one)
    add(latencies, 1.0, a=one.answer(SLOW, 50))
    assert add(latencies, 2.0, a=one.answer(FAST, 20), b=other) == (upper_edge(FAST), 20)
    assert add(latencies, 3.0, a=one.answer(SLOW, 2)) == (upper_edge(SLOW), 22), "one that went takes nothing away"


def test_a_forgotten_revision_begins_anew() -> None:
    latencies, replica = RecentLatencies(), Replica()
    add(latencies, 0.0, a=replica)
    latencies.forget(KEY)
    assert add(latencies, 1.0, a=replica.answer(FAST, 7))[1] == 0


class ScriptedReadings:
    """Replicas that answer by the test's clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.replica: Replica | Exception = Replica()
        self.asked = 0

    async def sample(self, endpoint: Endpoint) -> Sample:
        return Sample(self.now, 0.0, 0.0, 0.0, 0.0)

    async def answers(self, endpoint: Endpoint) -> LatencyTotals:
        self.asked += 1
        if isinstance(self.replica, Exception):
            raise self.replica
        return self.replica.page()

    async def close(self) -> None: ...


async def read(collector: MetricCollector, told: ScriptedReadings, *, objective: bool = True) -> RevisionReading:
    told.now += 1.0
    target = ScrapeTarget((Endpoint("default/m-1", "127.0.0.1", 1, 2),), 4.0, objective)
    return (await collector.read({KEY: target}))[KEY]


async def test_a_revision_with_an_objective_is_read_with_its_latency() -> None:
    told = ScriptedReadings()
    collector = MetricCollector(told, Sampling(), told)
    await read(collector, told)
    assert isinstance(told.replica, Replica)
    told.replica.answer(SLOW, 25)
    reading = await read(collector, told)
    assert (reading.latency, reading.answers) == (upper_edge(SLOW), 25.0)


async def test_one_without_an_objective_is_not_asked() -> None:
    told = ScriptedReadings()
    collector = MetricCollector(told, Sampling(), told)
    reading = await read(collector, told, objective=False)
    assert math.isnan(reading.latency) and reading.answers == 0.0
    assert told.asked == 0


@pytest.mark.parametrize("error", [NoSample("silent"), BadSample("no page")])
async def test_a_page_that_does_not_come_takes_nothing_from_the_reading(error: Exception) -> None:
    told = ScriptedReadings()
    collector = MetricCollector(told, Sampling(), told)
    told.replica = error
    reading = await read(collector, told)
    assert reading.complete and reading.answers == 0.0
    assert collector.rejected == isinstance(error, BadSample)


async def test_without_anybody_to_ask_no_latency_is_known() -> None:
    told = ScriptedReadings()
    reading = await read(MetricCollector(told, Sampling()), told)
    assert math.isnan(reading.latency) and reading.complete
