"""Replicas of both versions of a rollout: always within the surge, and never blocking each other permanently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.schedules import Schedule
from autoscaler.types import AUTO
from serving.reconciler.rollout.capacity import Replicas, plan_capacity, plan_return
from serving.reconciler.rollout.split import Situation
from serving.reconciler.rollout.state import RolloutState
from serving.types.rollout import Rollout
from serving.types.scaling import Scaling
from tests.serving.reconciler.rollout.play import NEW, NEWER, OLD, Play, rule
from tests.serving.reconciler.rollout.revisions import versions

SPEC = Scaling(0, 1000, 4.0, 0.7, 60.0, 1000)


def running(percent: int = 10, *, step: int = 0, stood: int = 4, steady: bool = False) -> RolloutState:
    """In a step, which is in force when it is `steady`."""
    return RolloutState(
        "Progressing", NEW, OLD, "t", "t",
        step=step, percent=percent, seen_at="t" * steady, stood={"magika": stood}, steady=steady,
    )  # fmt: skip


def situation(state: RolloutState | None) -> Situation:
    return Situation(versions(True, True), "g2", OLD, rollout=state)


def bounds(
    state: RolloutState, stable: int, candidate: int, *, seen: int = 10, spec: Scaling = SPEC, surge: int = 1
) -> tuple[tuple[int, int], tuple[int, int], int]:
    """(least, most) of the stable version and of the candidate, and how far the candidate's replicas reach."""
    replicas = {OLD: Replicas(stable, stable), NEW: Replicas(candidate, candidate)}
    shares = {OLD: 100 - seen, NEW: seen}
    found = plan_capacity(rule(max_surge=surge), spec, situation(state), shares, replicas)
    old, new = found.scaling[OLD], found.scaling.get(NEW, spec)
    return (old.min_replicas, old.max_replicas), (new.min_replicas, new.max_replicas), found.reach


def test_without_a_rollout_the_spec_decides() -> None:
    found = plan_capacity(Rollout(), SPEC, situation(None), {OLD: 100}, {OLD: Replicas(3, 2), NEW: Replicas(1, 0)})
    assert (found.scaling, found.reach, found.standing) == ({}, 100, {"magika": 3})


def test_one_replica_alone_has_nothing_to_take_turns_with() -> None:
    assert bounds(running(stood=1), 1, 1) == ((0, 1000), (0, 1000), 100)


def test_the_lines_of_the_example_in_the_docstring() -> None:
    at_50 = running(10, step=1)
    assert bounds(at_50, 4, 1, seen=10) == ((0, 4), (1, 1), 25)
    at_25 = replace(at_50, percent=25)
    assert bounds(at_25, 4, 1, seen=25) == ((0, 3), (1, 1), 25)
    assert bounds(at_25, 3, 1, seen=25) == ((0, 3), (2, 2), 25)
    assert bounds(at_25, 3, 2, seen=25) == ((0, 3), (2, 2), 50)
    assert bounds(replace(at_50, percent=50), 3, 2, seen=50) == ((0, 2), (2, 2), 50)


def test_a_step_that_is_asked_for_and_not_seen_takes_no_replica_away_yet() -> None:
    assert bounds(running(50, step=1), 4, 2, seen=10)[0] == (0, 4)


def test_once_it_is_steady_requests_decide_and_the_least_is_shared_by_percent() -> None:
    spec = replace(SPEC, min_replicas=4)
    assert bounds(running(50, step=1, steady=True), 2, 2, seen=50, spec=spec) == ((2, 1000), (2, 1000), 50)
    assert bounds(running(10, steady=True), 4, 1, spec=spec) == ((4, 1000), (1, 1000), 25)


def test_on_a_long_way_the_stable_version_may_take_one_more_and_what_requests_call_for_stood() -> None:
    waiting = replace(running(25, step=1), steady=True)
    spec = replace(SPEC, min_replicas=4, max_replicas=6)
    assert bounds(waiting, 3, 2, seen=25) == ((0, 4), (2, 2), 50)
    assert bounds(waiting, 3, 2, seen=25, spec=spec)[0] == (3, 4)  # may, not must
    assert bounds(waiting, 4, 2, seen=25) == ((0, 5), (2, 2), 40)  # five stood: the candidate keeps its second one
    assert bounds(waiting, 7, 1, seen=25, spec=spec)[0] == (4, 6)
    assert bounds(waiting, 2, 2, seen=25, surge=0)[0] == (0, 3)
    assert bounds(waiting, 3, 3, seen=25, surge=3)[0] == (0, 4)  # replicas of the surge were not called for
    assert bounds(replace(waiting, steady=False), 4, 2, seen=25) == ((0, 3), (2, 2), 50)
    assert bounds(replace(waiting, phase="Paused"), 3, 2, seen=25)[0] == (0, 1000)


def test_on_a_long_way_one_replica_more_of_a_small_part_makes_no_leap() -> None:
    waiting = replace(running(90, step=2), steady=True)
    assert bounds(waiting, 1, 3, seen=90) == ((0, 1), (4, 4), 75)
    assert bounds(waiting, 2, 3, seen=90) == ((0, 1), (3, 3), 75)  # not eleven in all


def test_keep_warm_is_the_stable_versions_and_a_refused_candidate_goes_at_once() -> None:
    promoted = replace(running(100), phase="Promoted")
    found = plan_capacity(Rollout(), SPEC, situation(promoted), {NEW: 100}, {})
    assert {name: one.scale_to_zero_after for name, one in found.scaling.items()} == {OLD: 600.0}
    refused = replace(running(0), phase="RolledBack", steady=True)
    found = plan_capacity(Rollout(), SPEC, situation(refused), {OLD: 100}, {})
    assert {name: (one.scale_to_zero_after, one.min_replicas) for name, one in found.scaling.items()} == {NEW: (1.0, 0)}
    unwarmed = plan_capacity(rule(keep_warm=0.0), SPEC, situation(promoted), {NEW: 100}, {})
    assert unwarmed.scaling[OLD].scale_to_zero_after == 60.0


def test_auto_is_a_minute_at_least_so_that_a_shorter_keep_warm_changes_nothing() -> None:
    promoted, auto = replace(running(100), phase="Promoted"), replace(SPEC, scale_to_zero_after=AUTO)
    for keep_warm, kept in ((0.0, AUTO), (60.0, AUTO), (61.0, 61.0)):
        found = plan_capacity(rule(keep_warm=keep_warm), auto, situation(promoted), {NEW: 100}, {})
        assert found.scaling[OLD].scale_to_zero_after == kept


def by_the_clock(found: Mapping[str, Scaling], name: str) -> list[int]:
    return [one.min_replicas for one in found[name].schedules]


def test_replicas_by_the_clock_are_shared_between_the_steps_and_wait_for_their_turn_on_the_way() -> None:
    spec = replace(SPEC, schedules=(Schedule("0 8 * * *", 3_600.0, 10), Schedule("0 9 * * *", 3_600.0, 1)))
    replicas, shares = {OLD: Replicas(4, 4), NEW: Replicas(1, 1)}, {OLD: 75, NEW: 25}
    between = plan_capacity(rule(), spec, situation(running(25, steady=True)), shares, replicas).scaling
    assert (by_the_clock(between, OLD), by_the_clock(between, NEW)) == ([8, 1], [3, 1])
    on_its_way = plan_capacity(rule(), spec, situation(running(25, step=1)), shares, replicas).scaling
    assert by_the_clock(on_its_way, OLD) == [3, 1], "no more than the rest of the traffic needs"
    assert (on_its_way[NEW].max_replicas, by_the_clock(on_its_way, NEW)) == (1, []), "its turn bounds it"


def test_what_is_to_go_is_not_kept_by_the_clock() -> None:
    spec = replace(SPEC, schedules=(Schedule("0 8 * * *", 3_600.0, 10),))
    refused = replace(running(0), phase="RolledBack", steady=True)
    assert by_the_clock(plan_capacity(Rollout(), spec, situation(refused), {OLD: 100}, {}).scaling, NEW) == []


def test_before_the_first_step_the_stable_version_grows_as_it_likes_however_long_the_candidate_loads() -> None:
    loading = running(0, stood=2)
    assert bounds(loading, 2, 1, seen=0)[0] == (2, 1000)
    assert bounds(replace(loading, steady=True), 8, 1, seen=0) == ((0, 1000), (1, 1), 13)
    assert bounds(replace(loading, phase="Paused", steady=True), 8, 1, seen=0)[0] == (0, 1000)
    assert bounds(loading, 2, 0, seen=0, surge=0)[0] == (0, 1)


def test_a_candidate_that_loads_adds_nothing_to_what_stands() -> None:
    replicas = {OLD: Replicas(4, 4), NEW: Replicas(3, 3)}
    assert plan_capacity(rule(max_surge=3), SPEC, situation(running(0)), {OLD: 100}, replicas).standing == {"magika": 4}
    assert plan_capacity(rule(max_surge=3), SPEC, situation(running(10, steady=True)), {}, replicas).standing == {
        "magika": 6
    }


def test_no_step_gives_more_replicas_than_the_spec_says_now() -> None:
    spec = replace(SPEC, max_replicas=4)
    whole = running(100, step=2, stood=7)
    assert bounds(whole, 4, 4, seen=100, spec=spec)[1] == (4, 4)
    assert bounds(whole, 1, 7, seen=100, spec=spec)[1] == (4, 4)
    assert bounds(running(10, stood=7), 7, 1, spec=spec)[0] == (0, 4)
    back = replace(running(0, stood=7), phase="RolledBack")
    assert bounds(back, 1, 7, seen=100, spec=spec)[0] == (4, 4)


def test_a_rollback_brings_back_what_stood_before_the_candidate_goes() -> None:
    back = replace(running(0), phase="RolledBack")
    replicas = {OLD: Replicas(1, 1), NEW: Replicas(4, 4)}
    unseen = plan_capacity(Rollout(), SPEC, situation(back), {OLD: 50, NEW: 50}, replicas)
    assert {name: one.min_replicas for name, one in unseen.scaling.items()} == {OLD: 4}
    seen = plan_capacity(Rollout(), SPEC, situation(back), {OLD: 100}, replicas)
    assert (seen.scaling[OLD].min_replicas, seen.scaling[NEW].scale_to_zero_after) == (4, 1.0)
    settled = plan_capacity(Rollout(), SPEC, situation(replace(back, steady=True)), {OLD: 100}, replicas)
    assert settled.scaling.keys() == {NEW}
    assert plan_return(SPEC, situation(back))[OLD].min_replicas == 4
    assert plan_return(SPEC, situation(replace(back, steady=True))) == {}


def test_what_a_rollout_superseded_leaves_once_it_has_no_traffic() -> None:
    newer = replace(running(0), candidate=NEWER)
    world = Situation(versions(True, True, None), "g3", OLD, rollout=newer)
    replicas = {OLD: Replicas(2, 2), NEW: Replicas(2, 2), NEWER: Replicas(1, 0)}
    with_traffic = plan_capacity(rule(), SPEC, world, {OLD: 50, NEW: 50}, replicas)
    assert NEW not in with_traffic.scaling
    without = plan_capacity(rule(), SPEC, world, {OLD: 100}, replicas)
    assert (without.scaling[NEW].min_replicas, without.scaling[NEW].scale_to_zero_after) == (0, 1.0)
    assert without.scaling[OLD].min_replicas == 4
    gone = plan_capacity(rule(), SPEC, world, {OLD: 100}, {**replicas, NEW: Replicas()})
    assert NEW not in gone.scaling


@dataclass(slots=True)
class Fleet:
    """Replicas of both versions under a load that `calls` for as many as stood.

    They come one at a time, the candidate's every `start` seconds, and go at once.
    What the autoscaler wants for the stable version follows its traffic only once the rollout is steady.
    """

    stood: int
    surge: int
    least: int = 0
    steps: tuple[int, ...] = (10, 50, 100)
    start: int = 1
    calls: int = field(init=False)
    play: Play = field(init=False)
    held: dict[str, Replicas] = field(init=False)
    most: int = 0

    def __post_init__(self) -> None:
        self.play = Play(rule=rule(steps=self.steps, max_surge=self.surge), ready=[True, None])
        self.held = {OLD: Replicas(self.stood, self.stood), NEW: Replicas()}
        self.calls = self.stood

    def tick(self) -> None:
        """A second: a pass, then the autoscaler, then the kubelet."""
        spec = replace(SPEC, min_replicas=self.least)
        assert self.play.rule is not None
        found = plan_capacity(self.play.rule, spec, self.play.situation(), self.play.shares, self.held)
        self.play.reach, self.play.standing = found.reach, dict(found.standing)
        steady = self.play.state is not None and self.play.state.steady
        self.play.step(1.0)
        percent = self.play.shares.get(NEW, 0)
        load = {OLD: self.calls * (100 - percent * steady), NEW: self.calls * percent}
        comes = self.play.seconds() % self.start == 0
        for name in (OLD, NEW):
            wanted = max(name == NEW, -(-load[name] // 100))
            scaling = found.scaling.get(name, spec)
            least = scaling.min_replicas if self.play.shares.get(name) else 0  # who gets nothing has no least
            desired = min(max(wanted, least), scaling.max_replicas)
            ready = min(desired, self.held[name].ready + (name == OLD or comes))
            self.held[name] = Replicas(desired, ready)
        self.play.ready = [True, True if self.held[NEW].ready else None]
        self.most = max(self.most, sum(one.held for one in self.held.values()))

    def roll_out(self) -> RolloutState:
        """Ticks until it has ended."""
        for _ in range(3_000):
            self.tick()
            if self.play.state is not None and not self.play.state.runs:
                return self.play.state
        raise AssertionError(f"it stands still: {self.play.state}, {self.held}")


@settings(max_examples=40)
@given(
    st.integers(2, 12),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from([(10, 50, 100), (1, 2, 100), (100,), (33, 66, 100)]),
)
def test_a_rollout_ends_and_never_takes_more_than_the_surge(
    stood: int, surge: int, fixed: bool, steps: tuple[int, ...]
) -> None:
    fleet = Fleet(stood, surge, stood if fixed else 0, steps)
    state = fleet.roll_out()
    assert (state.phase, [one.percent for one in state.passed]) == ("Promoted", list(steps))
    assert fleet.most <= stood + surge


@pytest.mark.parametrize("stood", [2, 3, 8])
def test_without_a_surge_the_stable_version_makes_room_first(stood: int) -> None:
    fleet = Fleet(stood, 0)
    fleet.held[NEW] = Replicas(1, 0)  # Knative starts one in any case
    state = fleet.roll_out()
    assert state.phase == "Promoted"
    assert fleet.most <= stood + 1


@pytest.mark.parametrize(("stood", "surge"), [(2, 1), (3, 1), (5, 1), (8, 3)])
def test_on_a_long_way_the_bounds_follow_a_load_that_grows_and_no_other(stood: int, surge: int) -> None:
    same = Fleet(stood, surge, start=200)
    assert same.roll_out().phase == "Promoted"
    assert same.most <= stood + surge
    grows = Fleet(stood, surge, start=10_000)
    grows.held[NEW] = Replicas(1, 1)
    while not (grows.play.state is not None and grows.play.state.step == 1):
        grows.tick()
    seen, grows.calls = grows.play.shares[NEW], 3 * stood
    for _ in range(200):
        grows.tick()
    assert grows.play.shares[NEW] == seen
    assert grows.held[OLD].ready == -(-3 * stood * (100 - seen) // 100)


def test_the_traffic_never_outruns_the_replicas() -> None:
    """Each version's share of the traffic is at most its share of the replicas that stood, but for the rounding."""
    fleet = Fleet(5, 1)
    while fleet.play.state is None or fleet.play.state.runs:
        fleet.tick()
        seen = fleet.play.shares.get(NEW, 0)
        assert fleet.held[NEW].ready * 100 >= (seen - 20) * 5
        assert fleet.held[OLD].ready * 100 >= (100 - seen - 20) * 5
