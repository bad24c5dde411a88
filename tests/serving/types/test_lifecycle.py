"""The conditions of a Model."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from clusters.base.objects import Object
from serving.types.lifecycle import GOOD, Lifecycle, State

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def by_type(conditions: list[Object]) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one.get("reason", "")) for one in conditions}


def test_ready_needs_all_three() -> None:
    lifecycle = Lifecycle((), NOW)
    assert by_type(lifecycle.conditions())["Ready"] == ("Unknown", "Deploying")
    lifecycle.mark_objects_applied()
    lifecycle.mark_configurations(GOOD)
    assert by_type(lifecycle.conditions())["Ready"][0] == "Unknown"
    lifecycle.mark_routes(GOOD)
    assert by_type(lifecycle.conditions())["Ready"] == ("True", "")


def test_false_wins_over_unknown_and_ready_takes_its_reason() -> None:
    lifecycle = Lifecycle((), NOW)
    lifecycle.mark_objects_waiting("x")
    lifecycle.mark_configurations(State("False", "ExitCode1", "magika-00002: wrong digest"))
    lifecycle.mark_routes(GOOD)
    assert by_type(lifecycle.conditions())["Ready"] == ("False", "ExitCode1")


def test_pinned_traffic_is_no_part_of_ready_and_goes_when_it_ends() -> None:
    lifecycle = Lifecycle((), NOW)
    lifecycle.mark_objects_applied()
    lifecycle.mark_configurations(GOOD)
    lifecycle.mark_routes(GOOD)
    lifecycle.mark_traffic_pinned("all to magika-00001")
    pinned = lifecycle.conditions()
    assert by_type(pinned)["TrafficPinned"] == ("True", "SpecTraffic")
    assert by_type(pinned)["Ready"] == ("True", "")
    assert "TrafficPinned" not in by_type(Lifecycle(pinned, NOW).conditions())


def test_a_replica_that_does_not_start_is_no_part_of_ready_and_goes_when_it_does() -> None:
    lifecycle = Lifecycle((), NOW)
    lifecycle.mark_objects_applied()
    lifecycle.mark_configurations(GOOD)
    lifecycle.mark_routes(GOOD)
    lifecycle.mark_replica_waiting("Unschedulable", "magika-00001: 0/1 nodes are available")
    waiting = lifecycle.conditions()
    assert by_type(waiting)["ReplicasStarted"] == ("False", "Unschedulable")
    assert by_type(waiting)["Ready"] == ("True", "")
    assert "ReplicasStarted" not in by_type(Lifecycle(waiting, NOW).conditions())


def test_the_time_of_a_transition_stays_while_the_status_does() -> None:
    first = Lifecycle((), NOW)
    first.mark_objects_applied()
    later = Lifecycle(first.conditions(), NOW + timedelta(hours=1))
    later.mark_objects_applied()
    later.mark_routes(GOOD)
    times = {one["type"]: one["lastTransitionTime"] for one in later.conditions()}
    assert times["ObjectsApplied"] == "2026-01-01T00:00:00Z"
    assert times["RoutesReady"] == "2026-01-01T01:00:00Z"


def test_a_model_that_cannot_be_read_says_only_that() -> None:
    lifecycle = Lifecycle((), NOW)
    lifecycle.mark_invalid("spec.batching: not supported yet")
    assert by_type(lifecycle.conditions()) == {
        "ObjectsApplied": ("False", "InvalidSpec"),
        "Ready": ("False", "InvalidSpec"),
    }
