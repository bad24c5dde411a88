"""Conditions follow Knative's rules of a living condition set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from clusters.base.objects import Object
from clusters.embedded.knative.conditions import Conditions, ConditionSet, Status

SET = ConditionSet(("A", "B"))
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=1)


def said(conditions: Conditions, kind: str = "Ready") -> tuple[str, str]:
    """Return status and reason."""
    found = conditions.get(kind) or {}
    return found.get("status", ""), found.get("reason", "")


def test_all_is_unknown_at_first() -> None:
    assert {kind: said(Conditions(SET, ()), kind)[0] for kind in ("Ready", "A", "B")} == dict.fromkeys(
        ("Ready", "A", "B"), "Unknown"
    )


def test_happy_needs_all_dependents() -> None:
    conditions = Conditions(SET, ())
    conditions.mark_true("A")
    assert said(conditions)[0] == "Unknown"
    conditions.mark_true("B")
    assert said(conditions) == ("True", "")


def test_false_trumps_unknown() -> None:
    conditions = Conditions(SET, ())
    conditions.mark_false("A", "Broken")
    conditions.mark_unknown("B", "Waiting")
    assert said(conditions) == ("False", "Broken")


def test_happy_carries_the_reason_of_what_changed_last() -> None:
    conditions = Conditions(SET, ())
    conditions.mark_false("A", "First")
    conditions.mark_false("B", "Second")
    assert said(conditions) == ("False", "Second")
    conditions.mark_true("B")
    assert said(conditions) == ("False", "First")


def test_other_conditions_inform_only() -> None:
    conditions = Conditions(SET, ())
    conditions.mark_true("A")
    conditions.mark_true("B")
    conditions.mark_false("Active", "NoTraffic")
    assert said(conditions)[0] == "True"
    assert (conditions.get("Active") or {})["severity"] == "Info"


def test_what_stays_keeps_its_time() -> None:
    first = Conditions(SET, ())
    first.mark_true("A")
    first.mark_unknown("B", "Waiting")
    second = Conditions(SET, first.result(NOON))
    second.mark_false("A", "For a moment")
    second.mark_true("A")
    second.mark_unknown("B", "Waiting", "with a word")
    times = {entry["type"]: entry["lastTransitionTime"] for entry in second.result(LATER)}
    assert times["A"] == "2026-01-01T12:00:00Z"
    assert times["B"] == times["Ready"] == "2026-01-01T12:01:00Z"


def test_a_new_generation_is_unknown_until_it_is_seen() -> None:
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z"}]
    status = Status({"metadata": {"generation": 2}, "status": {"observedGeneration": 1, "conditions": ready}})
    assert said(status.conditions) == ("Unknown", "NewObservedGenFailure")
    assert status.result(NOON)["observedGeneration"] == 2


MARKS = st.lists(st.tuples(st.sampled_from(["A", "B"]), st.sampled_from(["True", "False", "Unknown"])), max_size=12)


@given(marks=MARKS)
def test_happy_is_the_worst_of_its_dependents(marks: list[tuple[str, str]]) -> None:
    conditions = Conditions(SET, ())
    for kind, status in marks:
        conditions.propagate(kind, {"status": status, "reason": f"{kind}{status}"})
    present = {conditions.status("A"), conditions.status("B")}
    worst = next(status for status in ("False", "Unknown", "True") if status in present)
    assert conditions.status("Ready") == worst


@given(marks=MARKS)
def test_the_same_marks_again_change_nothing(marks: list[tuple[str, str]]) -> None:
    def told(former: list[Object]) -> list[Object]:
        conditions = Conditions(SET, former)
        for kind, status in marks:
            conditions.propagate(kind, {"status": status, "reason": f"{kind}{status}"})
        return conditions.result(LATER)

    first = told([])
    settled = told(first)
    assert told(settled) == settled
