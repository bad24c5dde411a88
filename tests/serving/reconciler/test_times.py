"""Clocks that are set during rollouts, and without any."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from clusters.base.objects import Key, Object, parse_timestamp
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.manager.process import LEASE_DURATION, LEASE_PERIOD
from serving.reconciler.clocks import RolloutClocks
from serving.reconciler.rollout.state import Phase, RolloutState, moment, seconds_between
from serving.reconciler.rollouts import CHANGE_OF_LEADER
from tests.serving.models import model_object
from tests.serving.reconciler.test_rollout import OLD, Script, stage_on
from tests.support.clock import SteppedClock

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR, MONTH = 3_600, 30 * 86_400
JUMPS = (HOUR, -HOUR, MONTH, -MONTH)


def model(phase: Phase | None, ended_at: str = "") -> Object:
    """A Model whose rollout stands so."""
    obj = model_object()
    if phase is not None:
        rollout = RolloutState(phase, "m-2", "m-1", moment(START), moment(START), ended_at=ended_at)
        obj["status"] = {"rollout": rollout.to_json()}
    return obj


@pytest.fixture
def clock() -> SteppedClock:
    """The machine's."""
    return SteppedClock(START)


@pytest.fixture
def times(clock: SteppedClock) -> RolloutClocks:
    """Of a process that begins now."""
    return RolloutClocks(clock, clock.monotonic)


@pytest.mark.fault("K9")
@pytest.mark.parametrize("jump", JUMPS)
@pytest.mark.parametrize("phase", [None, "Promoted", "Failed"])
def test_a_clock_that_is_put_right_while_no_rollout_runs_is_right(
    clock: SteppedClock, times: RolloutClocks, phase: Phase | None, jump: int
) -> None:
    times.now(model(phase, moment(START)))
    clock.jump(jump)
    clock.step(5)
    assert times.now(model(phase, moment(START))) == clock.now()


@pytest.mark.fault("K9")
@pytest.mark.parametrize("jump", JUMPS)
@pytest.mark.parametrize("phase", ["Progressing", "Paused"])
def test_a_rollout_goes_by_the_time_of_its_begin_until_it_ends(
    clock: SteppedClock, times: RolloutClocks, phase: Phase, jump: int
) -> None:
    began = times.now(model(None))
    clock.jump(jump)
    assert times.now(model(None), stale=True) == began  # the cache does not show yet that it began
    clock.step(5)
    assert times.now(model(phase)) - began == timedelta(seconds=5)
    assert times.now(model("Promoted", moment(began))) == clock.now()


@pytest.mark.fault("K9")
def test_a_rollback_settles_for_its_minute(clock: SteppedClock, times: RolloutClocks) -> None:
    began = times.now(model("Progressing"))
    clock.jump(HOUR)
    clock.step(30)
    assert times.now(model("RolledBack", moment(began))) - began == timedelta(seconds=30)
    clock.step(31)
    assert times.now(model("RolledBack", moment(began))) == clock.now()


def test_each_model_has_its_own_time_and_one_that_is_gone_none(clock: SteppedClock, times: RolloutClocks) -> None:
    other = {**model(None), "metadata": {"name": "other", "namespace": "default"}}
    times.now(model("Progressing"))
    clock.jump(HOUR)
    assert times.now(other) == clock.now() != times.now(model("Progressing"))
    times.forget(Key("default", "magika"))
    assert times.now(model("Progressing")) == clock.now()


@pytest.mark.fault("K9")
@pytest.mark.parametrize("jump", [HOUR, -HOUR])
async def test_a_process_that_began_by_a_wrong_clock_spoils_no_later_rollout(
    guarded: EmbeddedCluster, jump: int
) -> None:
    clock, script = SteppedClock(), Script()
    async with stage_on(guarded, clock, script) as stage:
        await stage.deploy(model_object(version="1", rollout={}))
        await stage.comes_up(OLD)
        await stage.traffic_is({OLD: 100})
        await stage.model_is("True")
        clock.jump(jump)  # NTP has come up
        await stage.deploys(2)
        state = await stage.in_force(10)
        assert abs(parse_timestamp(state.started_at) - clock.now()) < timedelta(seconds=1)
        clock.jump(jump)
        await stage.later(61)
        await stage.in_force(50)


@pytest.mark.fault("K9")
@pytest.mark.parametrize("jump", JUMPS)
async def test_another_leader_goes_on_with_a_step_where_it_stood_though_the_clock_was_set(
    guarded: EmbeddedCluster, jump: int
) -> None:
    clock, script = SteppedClock(), Script()
    async with stage_on(guarded, clock, script) as stage:
        await stage.deploy(model_object(version="1", rollout={}))
        await stage.comes_up(OLD)
        await stage.traffic_is({OLD: 100})
        await stage.deploys(2)
        began = await stage.in_force(10)
        await stage.later(30)
        await stage.rollout_is(lambda state: state.judgement is not None and state.judgement.at != began.seen_at)
    clock.jump(jump)
    async with stage_on(guarded, clock, script) as stage:
        await stage.later(29)
        state = await stage.rollout_is(
            lambda state: state.judgement is not None and state.judgement.at == moment(clock.now())
        )
        assert (state.percent, state.started_at) == (10, began.started_at)
        assert seconds_between(state.seen_at, clock.now()) == 59.0  # neither skipped nor begun anew
        await stage.later(1)
        await stage.in_force(50)


async def test_a_restart_between_two_looks_that_are_far_apart_takes_nothing_from_a_step(
    guarded: EmbeddedCluster,
) -> None:
    clock, script = SteppedClock(), Script()
    rule = {"stepDuration": "300s", "judge": {"interval": "600s"}}
    async with stage_on(guarded, clock, script) as stage:
        await stage.deploy(model_object(version="1", rollout=rule))
        await stage.comes_up(OLD)
        await stage.traffic_is({OLD: 100})
        await stage.deploys(2)
        began = await stage.in_force(10)
    for _ in range(2):
        async with stage_on(guarded, clock, script, away=1.0) as stage:
            await stage.later(100)
            await stage.quiet()
            assert (await stage.in_force(10)).seen_at == began.seen_at
    async with stage_on(guarded, clock, script, away=1.0) as stage:
        await stage.later(100)
        await stage.in_force(50)
    async with stage_on(guarded, clock, script, away=320.0) as stage:  # longer than a look at the step's end would be
        state = await stage.in_force(50)
        assert seconds_between(state.seen_at, clock.now()) == 0.0


def test_a_change_of_leader_takes_no_longer_than_it_is_waited_for() -> None:
    assert CHANGE_OF_LEADER >= LEASE_DURATION + LEASE_PERIOD


@pytest.mark.parametrize("jump", JUMPS)
def test_a_rollout_that_was_found_under_way_stays_so_until_it_is_written(
    clock: SteppedClock, times: RolloutClocks, jump: int
) -> None:
    clock.jump(jump)
    key, found = Key("default", "magika"), times.now(model("Progressing"))
    clock.step(5)
    times.now(model("Progressing"))
    assert times.found_at(key) == found
    times.record_write(key)
    assert times.found_at(key) is None
    times.now(model("Progressing"))
    assert times.found_at(key) is None


@pytest.mark.parametrize("phase", [None, "Promoted", "Failed"])
def test_a_rollout_that_begins_in_this_process_was_not_found_under_way(
    times: RolloutClocks, phase: Phase | None
) -> None:
    times.now(model(phase, moment(START)))
    times.now(model("Progressing"))
    assert times.found_at(Key("default", "magika")) is None
