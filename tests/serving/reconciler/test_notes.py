"""Events for changes of a status, and the rate limit of its writes."""

from __future__ import annotations

from typing import Any

from clusters.base.objects import Key, Object
from serving.reconciler.backoff import StatusRateLimiter
from serving.reconciler.events import events_of_change
from serving.reconciler.rollout.state import Phase, RolloutState
from tests.support.clock import SteppedClock

ENDS: tuple[Phase, ...] = ("RolledBack", "Failed")


def status(**parts: Any) -> Object:
    return {"status": parts}


def line(number: int, outcome: str = "", version: str = "") -> Object:
    parts = {"outcome": outcome, "version": version}
    said = {name: value for name, value in parts.items() if value}
    return {"revision": f"magika-{number:05d}", "storageUri": "file:///m", "cause": {"by": "user"}, "at": "t", **said}


def reasons(before: Object, after: Object) -> list[tuple[str, str]]:
    return [(event.type, event.reason) for event in events_of_change(before, after)]


def test_nothing_new_is_no_event() -> None:
    present = status(history=[line(1, "promoted")], traffic=[{"revision": "magika-00001", "percent": 100}])
    assert events_of_change(present, present) == []


def test_a_versions_life_is_told() -> None:
    new, failed = status(history=[line(1)]), status(history=[line(1, "failed")])
    assert reasons(status(), new) == [("Normal", "RevisionCreated")]
    assert reasons(new, failed) == [("Warning", "RevisionFailed")]
    assert reasons(new, status(history=[line(1, "promoted")])) == [("Normal", "Promoted")]
    assert reasons(new, status(history=[line(1, "rolledback")])) == [("Warning", "RolledBack")]
    assert reasons(new, status(history=[line(1, "serving")])) == []
    assert "(version 7)" in events_of_change(status(), status(history=[line(1, "", "7")]))[0].message


def test_a_rollback_that_is_given_again_is_no_event() -> None:
    before, after = (
        status(history=[{**line(1, "promoted"), "cause": {"by": "rollback", "id": f"magika-00001@{generation}"}}])
        for generation in (3, 4)
    )
    assert events_of_change(before, after) == []


def test_readiness_and_traffic_are_told() -> None:
    after = status(
        latestReadyRevision="magika-00001", traffic=[{"revision": "magika-00001", "percent": 100, "tag": "blue"}]
    )
    assert reasons(status(), after) == [("Normal", "RevisionReady"), ("Normal", "TrafficChanged")]
    assert "magika-00001=100 (blue)" in events_of_change(status(), after)[1].message


def test_a_refusal_is_told_once_for_each_message() -> None:
    def refused(message: str) -> Object:
        return status(
            conditions=[{"type": "ObjectsApplied", "status": "False", "reason": "NotOwned", "message": message}]
        )

    assert reasons(status(), refused("a")) == [("Warning", "NotOwned")]
    assert reasons(refused("a"), refused("a")) == []
    assert reasons(refused("a"), refused("b")) == [("Warning", "NotOwned")]


def test_writes_that_only_tell_of_scaling_are_held_to_one_a_second() -> None:
    clock, key = SteppedClock(), Key("default", "magika")
    limiter = StatusRateLimiter(clock)
    assert limiter.delay(key, {}, {"replicas": 1}) == 0
    clock.step(0.25)
    assert limiter.delay(key, {"replicas": 1}, {"replicas": 2, "decisions": []}) == 0.75
    clock.step(0.75)
    assert limiter.delay(key, {"replicas": 1}, {"replicas": 2}) == 0


def test_everything_else_is_written_at_once() -> None:
    clock, key = SteppedClock(), Key("default", "magika")
    limiter = StatusRateLimiter(clock)
    assert limiter.delay(key, {}, {"replicas": 1}) == 0
    assert limiter.delay(key, {"replicas": 1}, {"replicas": 1, "traffic": []}) == 0
    limiter.forget(key)
    assert limiter.delay(key, {}, {"replicas": 1}) == 0


def rollout(phase: Phase, percent: int = 10, *, candidate: str = "magika-00002", why: str = "because") -> Object:
    state = RolloutState(phase, candidate, "magika-00001", "t", "t", percent=percent, reasons=(why,))
    return status(rollout=state.to_json())


def test_the_way_of_a_rollout_is_told_step_by_step() -> None:
    assert reasons(status(), rollout("Progressing", 0)) == [("Normal", "RolloutStarted")]
    assert reasons(rollout("Progressing", 0), rollout("Progressing", 10)) == [("Normal", "RolloutProgressed")]
    assert reasons(rollout("Progressing"), rollout("Progressing")) == []
    assert reasons(rollout("Progressing"), rollout("Paused")) == [("Normal", "RolloutPaused")]
    assert reasons(rollout("Paused"), rollout("Progressing")) == [("Normal", "RolloutProgressing")]
    assert reasons(rollout("Progressing"), rollout("Promoted", 100)) == [("Normal", "RolloutPromoted")]
    for end in ENDS:
        assert reasons(rollout("Progressing"), rollout(end, 0)) == [("Warning", f"Rollout{end}")]
    newer = rollout("Progressing", 0, candidate="magika-00003")
    assert reasons(rollout("Progressing", 50), newer) == [("Normal", "RolloutStarted")]
    assert "because" in events_of_change(rollout("Progressing"), rollout("RolledBack", 0))[0].message


def test_a_lost_gpu_is_told_once() -> None:
    lost = {"type": "ReplicasStarted", "status": "False", "reason": "GPULost", "message": "iris-00001: GPU-0 is lost"}
    after = status(conditions=[lost])
    assert reasons(status(), after) == [("Warning", "GPULost")]
    assert reasons(after, after) == []
    assert reasons(status(), status(conditions=[{**lost, "reason": "Unschedulable"}])) == []
