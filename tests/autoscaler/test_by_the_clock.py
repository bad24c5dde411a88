"""A revision with schedules: replicas are added and removed by the clock, without requests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from autoscaler.config import Zero
from autoscaler.reconciler.spec import LONGEST_SLEEP, UNREACHABLE, make_revision_spec, seconds_to_schedule
from autoscaler.schedules import Schedule
from autoscaler.types import Policy
from clusters.base.objects import Object
from clusters.embedded.cluster import EmbeddedCluster
from tests.autoscaler.test_controller import at_zero
from tests.autoscaler.world import World, running
from tests.support.clock import SteppedClock

EIGHT = datetime(2026, 1, 1, 8, 0, tzinfo=UTC)
MORNING = Schedule("0 8 * * *", 3_600.0, 3)
POLICY = Policy(max_replicas=5, scale_to_zero_after=10.0, schedules=(MORNING,))


def wishes_at(hour: int, minute: int = 30, policy: Policy = POLICY, **spec: str) -> tuple[int, bool]:
    """Return the minimum replicas at that time, and whether none would be allowed."""
    found = make_revision_spec(pod_autoscaler(**spec), policy, Zero(), datetime(2026, 1, 1, hour, minute, tzinfo=UTC))
    return found.least, found.may_be_zero


def pod_autoscaler(**spec: str) -> Object:
    initialized = {"type": "ScaleTargetInitialized", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {"metadata": {"name": "m"}, "spec": dict(spec), "status": {"conditions": [initialized]}}


def test_an_open_window_raises_the_least_number_and_a_closed_one_does_not() -> None:
    assert [wishes_at(hour) for hour in (7, 8, 9)] == [(0, True), (3, False), (0, True)]


def test_it_lowers_nothing_and_raises_nothing_above_the_most() -> None:
    assert wishes_at(8, policy=Policy(min_replicas=4, schedules=(MORNING,))) == (4, False)
    assert wishes_at(8, policy=Policy(max_replicas=2, schedules=(MORNING,))) == (2, False)


def test_what_no_route_leads_to_is_not_kept_by_the_clock() -> None:
    assert wishes_at(8, reachability=UNREACHABLE)[0] == 0


def test_the_next_look_is_at_the_change_or_so_soon_that_a_clock_that_is_set_is_noticed() -> None:
    def look(hour: int, minute: int, policy: Policy = POLICY) -> float | None:
        now = datetime(2026, 1, 1, hour, minute, tzinfo=UTC)
        return seconds_to_schedule(make_revision_spec(pod_autoscaler(), policy, Zero(), now), now)

    assert [look(7, 58), look(8, 59), look(9, 0), look(9, 0, Policy())] == [120.0, 60.0, LONGEST_SLEEP, None]


async def test_a_model_at_zero_has_its_replicas_when_the_window_opens_and_not_before(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock(EIGHT.replace(hour=7, minute=59) + timedelta(seconds=47.8))
    async with running(World(cluster, clock)) as world:
        await at_zero(world, POLICY)  # which takes 12 s
        assert await world.replicas_asked() == 0
        clock.step(0.3)  # over the hour: the pass that found it closed has asked for another then
        await world.until(world.replicas_asked, 3)
        await world.pass_time(2.0)  # decisions are written once a second
        await world.until(lambda: last_rules(world), ["Bounds"])


async def last_rules(world: World) -> list[str]:
    """Return the rules of the last decision."""
    decisions = await world.decisions()
    return [reason["rule"] for reason in decisions[-1]["reasons"]] if decisions else []


async def test_they_go_again_once_it_is_closed(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock(EIGHT.replace(minute=59))
    async with running(World(cluster, clock)) as world:
        await world.create_revision(POLICY)
        await world.until(world.replicas_asked, 3)
        for _ in range(3):
            await world.start_pod()
        await world.until(world.mode, "Serve")
        await world.report_services(in_path=False)
        await world.until(lambda: world.condition("Ready"), ("True", ""))
        await world.pass_time(30.0)
        assert await world.replicas_asked() == 3
        await world.pass_time(300.0)
        world.autoscaler.reconsider()
        await world.until(world.mode, "Proxy")
        await world.report_services(in_path=True)
        await world.until(world.replicas_asked, 0)
