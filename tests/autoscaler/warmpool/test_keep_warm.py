"""Keep-alives along a timeline, with a decider that the test plays."""

from __future__ import annotations

import math

import pytest

from autoscaler.config import DecisionSettings
from autoscaler.metrics.collector import RevisionReading
from autoscaler.scaling.stages.stage import StageInputs
from autoscaler.scaling.stages.zero import idle_limit
from autoscaler.scaling.table import AUTO, DeciderState, Observations, Specs
from autoscaler.warmpool.sizing.arrivals import ClassKey
from autoscaler.warmpool.sizing.keep_alive_planner import ENOUGH, LEAST
from autoscaler.warmpool.sizing.keep_warm import PLAN_INTERVAL, KeepWarm, usual_keep_alive
from autoscaler.warmpool.sizing.planner import PoolView
from clusters.base.objects import Key
from tests.autoscaler.warmpool.keeping import START_TIME, Decider, keep_warm
from tests.support.clock import SteppedClock

WHERE = ClassKey("default", "c1")
OFTEN, RARE = Key("default", "often-00001"), Key("default", "rare-00001")
POOL = PoolView(0, 10, 30.0)
USUAL = 12 * START_TIME


class Timeline:
    """Requests of one second each to revisions that are followed from the beginning."""

    def __init__(self, *keys: Key) -> None:
        self.clock = SteppedClock()
        self.decider = Decider()
        self.keep: KeepWarm = keep_warm(self.clock, self.decider)
        for key in keys:
            self.keep.follow(key, WHERE, None)

    def request(self, key: Key, *, waits: bool = False) -> None:
        """Send a request to a warm replica, or to a revision at zero, where it waits; its work takes a second."""
        if waits:
            self.decider.queued[key] = 1
            self.keep.observe_queue(key)
            self.decider.queued[key] = 0
        self.read(key, busy=True)
        self.clock.step(1.0)
        self.read(key, busy=False)

    def read(self, key: Key, *, busy: bool, complete: bool = True) -> None:
        """Read the revision's replicas in a tick."""
        self.keep.observe({key: RevisionReading(float(busy), 0.0, 0.0, 0.0, busy, complete)})

    def habits(self) -> None:
        """Send requests to two revisions for hours, one every 20 s, the other every 900 s."""
        for number in range(450):
            self.request(OFTEN)
            if number % 45 == 0:
                self.request(RARE, waits=True)
            self.clock.step(19.0)


def test_a_plan_keeps_what_is_asked_often_and_lets_the_rare_go_soon() -> None:
    line = Timeline(OFTEN, RARE)
    line.habits()
    line.keep.plan(WHERE, POOL)
    often, rare = (line.keep.follow(key, WHERE, None) for key in (OFTEN, RARE))
    assert often is not None
    assert rare is not None
    assert often.seconds >= 20.0
    assert LEAST <= rare.seconds < 30.0 < USUAL
    assert set(line.decider.changed) == {OFTEN, RARE}


def test_idle_times_are_counted_from_the_end_of_work_to_the_next_request_warm_or_not() -> None:
    line = Timeline(OFTEN)
    for waits in (False, True) * 20:
        line.request(OFTEN, waits=waits)
        line.clock.step(49.0)
    line.keep.plan(WHERE, PoolView())
    hold = line.keep.follow(OFTEN, WHERE, None)
    assert hold is not None
    assert hold.reason.values["seen"] == 39
    assert hold.seconds >= 49.0


def test_before_enough_is_known_the_policy_stands() -> None:
    line = Timeline(OFTEN)
    for _ in range(ENOUGH):  # one idle time less than requests
        line.request(OFTEN)
        line.clock.step(30.0)
    assert line.keep.plan(WHERE, POOL) is None
    assert line.keep.follow(OFTEN, WHERE, None) is None
    assert not line.decider.changed


def test_a_plan_holds_for_a_minute() -> None:
    line = Timeline(OFTEN, RARE)
    line.habits()
    first = line.keep.plan(WHERE, POOL)
    line.clock.step(PLAN_INTERVAL - 1.0)
    assert line.keep.plan(WHERE, PoolView()) is first
    line.clock.step(1.0)
    assert line.keep.plan(WHERE, PoolView()) is not first


def test_a_keep_alive_that_somebody_set_is_taken_by_its_word() -> None:
    line = Timeline(OFTEN, RARE)
    line.keep.follow(RARE, WHERE, 300.0)
    line.habits()
    line.keep.plan(WHERE, POOL)
    assert line.keep.follow(RARE, WHERE, 300.0) is None
    assert line.decider.changed == [OFTEN]


def test_without_the_pool_the_policy_stands_again() -> None:
    line = Timeline(OFTEN, RARE)
    line.habits()
    line.keep.plan(WHERE, POOL)
    line.decider.changed.clear()
    line.keep.drop(WHERE)
    assert line.keep.follow(OFTEN, WHERE, None) is None
    assert set(line.decider.changed) == {OFTEN, RARE}


def test_a_hold_that_hardly_changed_wakes_nobody() -> None:
    line = Timeline(OFTEN, RARE)
    line.habits()
    line.keep.plan(WHERE, POOL)
    line.decider.changed.clear()
    line.clock.step(PLAN_INTERVAL)
    line.keep.plan(WHERE, POOL)
    assert not line.decider.changed


def test_a_revision_of_another_template_has_no_hold_of_the_former_pool() -> None:
    line = Timeline(OFTEN, RARE)
    line.habits()
    line.keep.plan(WHERE, POOL)
    assert line.keep.follow(OFTEN, ClassKey("default", "c2"), None) is None


def test_what_must_not_go_to_zero_for_a_while_keeps_its_history() -> None:
    line = Timeline(OFTEN, RARE)
    line.habits()
    line.keep.unfollow(OFTEN)
    line.keep.follow(OFTEN, WHERE, None)
    line.keep.plan(WHERE, POOL)
    hold = line.keep.follow(OFTEN, WHERE, None)
    assert hold is not None
    assert int(hold.reason.values["seen"]) > 200


def test_a_silent_replica_ends_no_work() -> None:
    line = Timeline(OFTEN)
    for _ in range(40):
        line.read(OFTEN, busy=True)
        line.clock.step(30.0)
        line.read(OFTEN, busy=False, complete=False)
    assert line.keep.plan(WHERE, POOL) is None


def test_a_revision_that_is_not_followed_or_gone_is_nobody_s_business() -> None:
    line = Timeline(OFTEN)
    line.request(RARE, waits=True)
    line.keep.forget(OFTEN)
    line.request(OFTEN, waits=True)
    assert line.keep.plan(WHERE, POOL) is None


@pytest.mark.parametrize("start_time", [0.2, 3.0, 10.0, 30.0, 120.0])
def test_the_usual_keep_alive_is_the_decider_s(start_time: float) -> None:
    specs = Specs.of(scale_to_zero_after=AUTO)
    seen = Observations.of(start_time=start_time)
    limit = idle_limit(StageInputs(specs, seen, DeciderState.empty(1), 0.0, DecisionSettings()))
    assert limit[0] == usual_keep_alive(start_time, DecisionSettings())


def test_a_revision_that_never_started_is_planned_for_with_an_assumed_start_time() -> None:
    line = Timeline(OFTEN, RARE)
    line.decider.start_times = {OFTEN: math.nan, RARE: math.nan}
    line.habits()
    balance = line.keep.plan(WHERE, POOL)
    assert balance is not None
    assert all(hold >= LEAST for hold in balance.holds)
