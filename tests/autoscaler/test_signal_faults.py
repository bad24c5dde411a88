"""Faults A2 to A6: decisions with replicas that do not answer, report faulty values, hang, or respond endlessly."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import resource
import time
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.config import AutoscalerSettings, Sampling
from autoscaler.metrics.activator_page import NO_REQUESTS
from autoscaler.metrics.collector import MetricCollector, RevisionReading, ScrapeTarget
from autoscaler.metrics.source import NoSample, PodScraper
from autoscaler.metrics.stat import BadSample, parse_stats
from autoscaler.scaling.multi_scaler import MultiScaler
from autoscaler.types import Policy
from clusters.base.clock import SystemClock
from clusters.base.objects import EVENT, Key
from clusters.embedded.cluster import EmbeddedCluster
from clusters.net.endpoints import Endpoint
from tests.autoscaler.pages import Behaviour, answer, drip, hang, pour, pour_headers, serving, slam
from tests.autoscaler.test_controller import at_zero
from tests.autoscaler.test_controller import serving as serving_revision
from tests.autoscaler.world import World, running
from tests.support.clock import SteppedClock
from tests.support.wait import eventually

KEY, OTHER = Key("default", "m-00001"), Key("default", "other-00001")
SLOTS = 4.0
BOUNDS = {"min": 1, "max": 20, "target": SLOTS, "stable_window": 60.0}
BRISK = Sampling(tick=0.4, timeout=0.2, max_bytes=4_096)
GROWTH = 10 * 1024  # KiB, as getrusage counts
FIVE_MINUTES = 300.0


def stats(busy: object, requests: object = 0, active: object = 0) -> bytes:
    return json.dumps({"busySeconds": busy, "requests": requests, "active": active}).encode()


def busy(slots: float) -> Behaviour:
    """Return a replica with a constant number of slots in use."""

    async def behave(writer: asyncio.StreamWriter) -> None:
        await answer(stats(slots * time.monotonic(), active=slots))(writer)

    return behave


class Fleets:
    """Scripted replicas of some revisions, read and decided on as by the autoscaler."""

    def __init__(self, sampling: Sampling = BRISK) -> None:
        clock = SystemClock()
        self.source = PodScraper(clock, sampling)
        self.collector = MetricCollector(self.source, sampling)
        self.fleet = MultiScaler(AutoscalerSettings(sampling=sampling), lambda _: NO_REQUESTS)
        self.targets: dict[Key, ScrapeTarget] = {}
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Fleets:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.source.close()
        await self._stack.aclose()

    async def add(self, key: Key, behaviours: Sequence[Behaviour], **bounds: float) -> None:
        """Add a revision with one ready replica for each behaviour."""
        servers = [await self._stack.enter_async_context(serving(one)) for one in behaviours]
        endpoints = [Endpoint(f"{key}-{n}", one.host, 1, one.port) for n, one in enumerate(servers)]
        self.targets[key] = ScrapeTarget(tuple(endpoints), SLOTS)
        self.fleet.set_spec(key, {**BOUNDS, **bounds})
        self.fleet.set_replicas(key, len(servers), len(servers), time.monotonic())

    async def tick(self, now: float) -> Mapping[Key, RevisionReading]:
        readings = await self.collector.read(self.targets)
        self.fleet.observe(readings, self.targets, now)
        self.fleet.decide(list(self.targets), now)
        return readings

    async def ticks(self, count: int) -> Mapping[Key, RevisionReading]:
        """Run so many ticks, a second apart by the test's clock."""
        begin, readings = time.monotonic(), {}
        for number in range(count):
            readings = dict(await self.tick(begin + number))
        return readings


@pytest.fixture
async def fleets() -> AsyncIterator[Fleets]:
    async with Fleets() as made:
        yield made


# --- A2: silence ---


@pytest.mark.fault("A2")
async def test_five_minutes_without_a_reading_hold_the_count_and_requests_that_wait_still_raise_it(
    cluster: EmbeddedCluster,
) -> None:
    async with running(World(cluster, SteppedClock())) as world:
        pod = await serving_revision(world, Policy(scale_to_zero_after=10.0, max_replicas=5, scale_target=2.0))
        world.replicas.work(pod, 1.0)
        await world.pass_time(5.0)
        world.replicas.silent.add(pod)
        await world.pass_time(FIVE_MINUTES)
        assert await world.replicas_asked() == 1, "held: neither more, nor less, nor zero"
        assert await told(world) == {"MetricsUnavailable"}
        assert await world.condition("MetricsAvailable") == ("False", "MetricsUnavailable")
        assert await world.condition("Ready") == ("True", ""), "it serves"

        world.activator.holds(queued=12)
        await eventually(lambda: more_than_one(world))
        world.activator.holds(queued=0)
        await world.pass_time(FIVE_MINUTES)
        assert await more_than_one(world), "nothing goes as long as nobody says that it is idle"
        world.replicas.silent.clear()
        await world.pass_time(2.0)
        await eventually(lambda: tells(world, {"MetricsUnavailable", "MetricsAvailable"}))
        await world.until(lambda: world.condition("MetricsAvailable"), ("True", ""))


@pytest.mark.fault("A2")
async def test_with_its_last_silent_replica_a_revisions_silence_is_over(cluster: EmbeddedCluster) -> None:
    async with running(World(cluster, SteppedClock())) as world:
        pod = await serving_revision(world, Policy())
        world.replicas.silent.add(pod)
        await world.pass_time(20.0)
        await world.until(lambda: world.condition("MetricsAvailable"), ("False", "MetricsUnavailable"))

        await world.stop_pod(pod)
        await world.until(lambda: condition_after_a_tick(world), ("True", ""))


async def condition_after_a_tick(world: World) -> tuple[str, str]:
    """Return MetricsAvailable a second later: the autoscaler may not have seen the last change yet at its last tick."""
    await world.pass_time(1.0)
    return await world.condition("MetricsAvailable")


@pytest.mark.fault("A2")
async def test_what_is_at_zero_comes_back_and_stays_while_activators_are_not_heard(cluster: EmbeddedCluster) -> None:
    async with running(World(cluster, SteppedClock())) as world:
        await at_zero(world)
        world.signal_available = False
        world.autoscaler.reconsider()
        await world.until(world.replicas_asked, 1)
        await eventually(lambda: tells(world, {"MetricsUnavailable"}))
        await world.until(lambda: world.condition("MetricsAvailable"), ("False", "MetricsUnavailable"))
        await world.start_pod()
        await world.until(world.mode, "Serve")
        await world.report_services(in_path=False)
        await world.pass_time(FIVE_MINUTES)
        assert (await world.replicas_asked(), await world.mode()) == (1, "Serve")

        world.signal_available = True
        world.autoscaler.reconsider()
        await world.until(world.mode, "Proxy")
        await world.report_services(in_path=True)
        await world.until(world.replicas_asked, 0)


@pytest.mark.fault("A2")
async def test_the_last_replica_stays_as_long_as_an_activator_does_not_say_what_it_holds(
    cluster: EmbeddedCluster,
) -> None:
    async with running(World(cluster, SteppedClock())) as world:
        await serving_revision(world, Policy(scale_to_zero_after=10.0))
        world.activator.answers = False
        await world.pass_time(12.0)
        await world.until(world.mode, "Proxy")
        await world.report_services(in_path=True)
        await world.pass_time(60.0)
        assert await world.replicas_asked() == 1
        world.activator.answers = True
        await world.pass_time(2.0)
        await world.until(world.replicas_asked, 0)


async def told(world: World) -> set[str]:
    """Return the reasons of the Events."""
    return {event["reason"] for event in (await world.cluster.list(EVENT)).items}


async def tells(world: World, reasons: set[str]) -> bool:
    return await told(world) == reasons


async def more_than_one(world: World) -> bool:
    return await world.replicas_asked() > 1


# --- A3: what is no reading ---

NONSENSE = [
    b'{"busySeconds": NaN, "requests": 1}',
    b'{"busySeconds": -Infinity, "requests": 1}',
    stats(-1),
    stats(1e308),
    stats("1"),
    b"busy",
    b"",
]


@pytest.mark.fault("A3")
@pytest.mark.parametrize("body", NONSENSE)
async def test_what_is_no_reading_is_counted_and_the_count_of_replicas_stays(fleets: Fleets, body: bytes) -> None:
    await fleets.add(KEY, [answer(body), answer(body)])
    assert await fleets.ticks(5) == {}
    assert fleets.collector.rejected == 10
    assert fleets.fleet.desired(KEY) == 2


@pytest.mark.bad_input("scrape-values")
@pytest.mark.fault("A3")
@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.floats(width=32) | st.floats(0, 1e15), st.floats(0, 1e15), st.floats(0, 1e9)), max_size=6),
    st.integers(1, 9),
)
def test_whatever_replicas_say_the_decision_is_a_number_within_the_bounds(
    said: list[tuple[float, float, float]], replicas: int
) -> None:
    class ScriptedReadings:
        async def sample(self, endpoint: Endpoint) -> object:
            turn[0] += 1
            busy, requests, active = said[turn[0] % len(said)] if said else (0.0, 0.0, 0.0)
            text = json.dumps({"busySeconds": busy, "requests": requests, "active": active}).encode()
            return parse_stats(text, float(turn[0]))

        async def close(self) -> None: ...

    turn = [0]
    fleet = MultiScaler(AutoscalerSettings(), lambda _: NO_REQUESTS)
    fleet.set_spec(KEY, BOUNDS)
    collector = MetricCollector(ScriptedReadings(), Sampling())  # type: ignore[arg-type]
    endpoints = tuple(Endpoint(f"default/m-{n}", "127.0.0.1", 1, 2) for n in range(replicas))
    for now in range(8):
        fleet.set_replicas(KEY, replicas, replicas, float(now))
        readings = asyncio.run(collector.read({KEY: ScrapeTarget(endpoints, SLOTS)}))
        fleet.observe(readings, [KEY], float(now))
        fleet.decide([KEY], float(now))
        desired = fleet.desired(KEY)
        assert isinstance(desired, int) and BOUNDS["min"] <= desired <= BOUNDS["max"]


# --- A4: a lie ---


@pytest.mark.bad_input("scrape-lies")
@pytest.mark.fault("A4")
@pytest.mark.parametrize("lie", [0.0, 1e9])
async def test_one_replica_that_lies_counts_for_no_more_than_it_can_hold(fleets: Fleets, lie: float) -> None:
    await fleets.add(KEY, [busy(SLOTS), busy(SLOTS), busy(lie)], max=1_000)
    readings = await fleets.ticks(3)
    most = 1.5 * 2 * SLOTS + Sampling().claim_limit * SLOTS  # readings of the honest ones jitter on a busy machine
    assert readings[KEY].work <= most
    assert fleets.fleet.desired(KEY) <= most / SLOTS + 1
    assert fleets.fleet.desired(KEY) >= 3, "nobody goes after three readings"


@pytest.mark.fault("A4")
async def test_one_replica_among_many_that_lies_counts_for_three_times_what_the_others_hold(fleets: Fleets) -> None:
    await fleets.add(KEY, [busy(SLOTS / 2)] * 4 + [busy(1e9)], max=1_000)
    readings = await fleets.ticks(3)
    others = 1.5 * 4 * SLOTS / 2  # readings of the honest ones jitter on a busy machine
    assert readings[KEY].work <= others + 3 * 1.5 * SLOTS / 2
    assert fleets.fleet.desired(KEY) <= 6


# --- A5: endpoints that hang, drip, pour ---


@pytest.mark.bad_input("scrape-size")
@pytest.mark.fault("A5")
async def test_replicas_that_misbehave_cost_no_memory_and_delay_no_others(fleets: Fleets) -> None:
    good = answer(stats(1.0))
    await fleets.add(OTHER, [good])
    await fleets.ticks(2)
    await fleets.add(KEY, [hang, drip, pour, pour_headers, slam, hang])
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(5):
        began = time.monotonic()
        readings = await fleets.tick(began + number)
        assert time.monotonic() - began < 2 * BRISK.tick
        assert KEY not in readings
        assert readings[OTHER].complete
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GROWTH
    assert fleets.collector.rejected + fleets.collector.unanswered == 30


# --- A6: half of the replicas ---


@pytest.mark.fault("A6")
@pytest.mark.parametrize("active", [0.0, SLOTS])
async def test_half_of_the_replicas_silent_neither_adds_nor_removes_any(fleets: Fleets, active: float) -> None:
    """Kubernetes' rule for missing metrics: they count as idle where that adds, as full where that would remove."""
    await fleets.add(KEY, [busy(active)] * 4 + [slam] * 4)
    fleets.fleet.record_start(KEY, 1.0)  # what starts fast is not held for long
    readings = await fleets.ticks(90)
    assert (readings[KEY].missing, readings[KEY].complete) == (4 * SLOTS, False)
    assert fleets.fleet.desired(KEY) == (4 if active == 0.0 else 8)


@pytest.mark.fault("A6")
async def test_what_half_of_the_replicas_say_still_scales_up(fleets: Fleets) -> None:
    await fleets.add(KEY, [busy(4 * SLOTS)] * 2 + [slam] * 2)
    await fleets.ticks(10)
    assert fleets.fleet.desired(KEY) >= 8


async def test_a_reading_that_is_silent_is_told_from_one_that_is_refused(fleets: Fleets) -> None:
    await fleets.add(KEY, [slam, answer(b"busy")])
    for endpoint, error in zip(fleets.targets[KEY].endpoints, (NoSample, BadSample), strict=True):
        with pytest.raises(error):
            await fleets.source.sample(endpoint)
