"""Test Knative's rule step by step against values calculated by hand."""

from __future__ import annotations

from loadtests.simulate.knative import Knative, KnativeWindow
from loadtests.simulate.scaler import RevisionState
from loadtests.simulate.simulation import Simulation
from tests.simulate.workloads import workload


class Revision:
    """A revision of 10 slots, hence a target of 7; `held` requests on average in each second that passes."""

    def __init__(self, replicas: int = 0, ready: int | None = None) -> None:
        self.now = 0.0
        self.rule = Knative(10)
        self.replicas = replicas
        self.ready = replicas if ready is None else ready
        self._held = 0.0
        self.rule.observe_replicas(self._state(0))

    def seconds(self, count: int, held: float) -> list[int]:
        """The replicas after each of these seconds; those asked for are ready at once unless `ready` is set later."""
        return [self._second(held) for _ in range(count)]

    def request(self, queued: int = 1) -> int:
        return self._scaled(self.rule.decide_on_queue_change(self._state(queued)))

    def _second(self, held: float) -> int:
        self.now += 1.0
        self._held += held
        return self._scaled(self.rule.decide_at_tick(self._state(0)))

    def _scaled(self, replicas: int) -> int:
        if replicas != self.replicas:
            self.replicas = self.ready = replicas
            self.rule.observe_replicas(self._state(0))
        return replicas

    def _state(self, queued: int) -> RevisionState:
        return RevisionState(self.now, self.replicas, self.ready, queued, 0, held_seconds=self._held)


def test_the_first_request_at_zero_causes_a_decision_at_once() -> None:
    assert Revision().request() == 1


def test_decisions_are_made_every_other_second() -> None:
    revision = Revision(replicas=1)
    assert revision.seconds(4, held=13.0) == [1, 2, 2, 2]  # 13 / 7, rounded up


def test_a_burst_of_twice_the_ready_replicas_scales_by_the_panic_window() -> None:
    revision = Revision(replicas=4)
    revision.seconds(60, held=20.0)  # ⌈20 / 7⌉ = 3
    assert revision.replicas == 3
    # After two seconds: stable (58 · 20 + 2 · 70) / 60 = 21.7, 4 replicas; panic (4 · 20 + 2 · 70) / 6 = 36.7, and
    # 6 ≥ 2 · 3.
    assert revision.seconds(2, held=70.0)[-1] == 6


def test_a_smaller_burst_scales_by_the_stable_window() -> None:
    revision = Revision(replicas=3)
    revision.seconds(60, held=20.0)
    # Panic (4 · 20 + 2 · 50) / 6 = 30, 5 replicas < 2 · 3; stable (58 · 20 + 2 · 50) / 60 = 21, 3 replicas.
    assert revision.seconds(2, held=50.0)[-1] == 3


def test_replicas_stay_for_a_stable_window_after_panic() -> None:
    revision = Revision(replicas=1)
    revision.seconds(2, held=140.0)
    assert revision.replicas == 20
    after = revision.seconds(80, held=7.0)
    panicked_until = next(second for second, replicas in enumerate(after, start=1) if replicas < 20)
    # The panic window calls for ≥ 2 · 20 replicas no more: the last moment of panic is the second second.
    assert panicked_until == 62
    assert after[panicked_until - 1] == 10  # at most half at once


def test_replicas_are_halved_at_most() -> None:
    revision = Revision(replicas=8)
    assert revision.seconds(6, held=0.1)[1::2] == [4, 2, 1]


def test_the_last_replica_is_removed_after_an_empty_stable_window() -> None:
    revision = Revision()
    revision.request()
    revision.seconds(10, held=1.0)
    after = revision.seconds(70, held=0.0)
    assert after.index(0) + 1 == 60


def test_the_activator_must_be_in_the_path_for_the_grace_period() -> None:
    revision = Revision(replicas=100)  # room for 1000 requests: the activator is out of the path
    revision.seconds(2, held=600.0)
    after = revision.seconds(140, held=0.0)
    few = next(second for second, replicas in enumerate(after, start=1) if replicas * 10 < 211)
    assert after.index(0) + 1 >= few + 30


def test_starting_replicas_do_not_count() -> None:
    revision = Revision(replicas=10, ready=1)
    revision.seconds(1, held=140.0)
    assert revision.seconds(1, held=140.0) == [20]


def test_a_window_sums_values_within_a_second_and_averages_over_the_seconds_since_the_first() -> None:
    window = KnativeWindow(6)
    assert window.average(0.0) is None
    window.record(10.2, 1.0)
    window.record(10.9, 2.0)
    assert window.average(10.9) == 3.0
    window.record(13.0, 5.0)
    assert window.average(13.0) == 2.0  # over 10, 11, 12, 13


def test_a_window_omits_seconds_without_records_at_its_end() -> None:
    window = KnativeWindow(6)
    for second in range(6):
        window.record(float(second), 6.0)
    assert window.average(5.0) == 6.0
    assert window.average(7.0) == 6.0  # four of the six seconds are known
    assert window.average(11.0) is None
    window.record(20.0, 4.0)
    assert window.average(20.0) == 4.0  # a first record


def test_requests_that_wait_for_a_slow_start_raise_the_demand() -> None:
    """The overshoot of a rule that counts ready replicas only."""
    arrivals = [0.1 * number for number in range(100)]
    fast = Simulation(workload(arrivals, 1.0, slots=1, start=1.0), Knative(1)).run("fast")
    slow = Simulation(workload(arrivals, 1.0, slots=1, start=30.0), Knative(1)).run("slow")
    assert slow.peak > 3 * fast.peak
