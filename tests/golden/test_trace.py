"""Traces from watch events, and what recordings of real Knative have in common."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from clusters.base.api import WatchEvent
from clusters.base.objects import REVISION, SERVICE, Kind, Object
from tests.golden.comparison import differences, is_subsequence, vocabulary
from tests.golden.files import read_goldens, write_golden
from tests.golden.reduction import Golden, common, reduce
from tests.golden.trace import Change, Trace, trace_of


def event(kind: Kind, version: int, type: str = "MODIFIED", **conditions: str) -> tuple[Kind, WatchEvent]:
    """A watch event of object `app`; a condition is `Status` or `Status Reason`."""
    said = [
        {"type": name, "status": value.split()[0], "reason": " ".join(value.split()[1:])}
        for name, value in conditions.items()
    ]
    obj: Object = {"metadata": {"name": "app", "resourceVersion": str(version)}, "status": {"conditions": said}}
    return kind, WatchEvent(type, obj)  # type: ignore[arg-type]


def trace(*steps: tuple[str, str, str]) -> Trace:
    """A trace of (object, condition, value), one write each."""
    changes = tuple(Change(version, *step) for version, step in enumerate(steps, start=1))
    final: dict[str, dict[str, str]] = {}
    for obj, condition, value in steps:
        final.setdefault(obj, {})[condition] = value
    return Trace(changes, final)


def ready(obj: str, *values: str) -> list[tuple[str, str, str]]:
    """Steps of the condition Ready of one object."""
    return [(obj, "Ready", value) for value in values]


def test_changes_are_ordered_by_version_over_all_kinds_and_told_once() -> None:
    made = trace_of(
        [
            event(SERVICE, 1, "ADDED"),
            event(SERVICE, 4, Ready="Unknown OutOfDate"),
            event(SERVICE, 5, Ready="Unknown OutOfDate"),
            event(SERVICE, 7, Ready="True"),
            event(REVISION, 2, "ADDED"),
            event(REVISION, 6, Ready="True"),
            event(REVISION, 8, "DELETED", Ready="True"),
        ]
    )
    assert [(one.version, one.object, one.condition, one.value) for one in made.changes] == [
        (1, "Service/app", "(object)", "made"),
        (2, "Revision/app", "(object)", "made"),
        (4, "Service/app", "Ready", "Unknown OutOfDate"),
        (6, "Revision/app", "Ready", "True"),
        (7, "Service/app", "Ready", "True"),
        (8, "Revision/app", "(object)", "gone"),
    ]
    assert made.final == {"Service/app": {"(object)": "made", "Ready": "True"}}
    assert Trace.from_dict(made.to_dict()) == made


def test_what_came_before_a_trace_only_says_how_things_stood() -> None:
    made = trace_of(
        [event(SERVICE, 1, "ADDED", Ready="True", Other="True"), event(SERVICE, 2, Ready="False Broken")], 1
    )
    assert [(one.condition, one.value) for one in made.changes] == [("Ready", "False Broken")]


def test_recordings_are_reduced_to_what_all_of_them_showed() -> None:
    slow = trace(*ready("Revision/app-00001", "Unknown", "True"), *ready("Configuration/app", "Unknown", "True"))
    quick = trace(*ready("Revision/app-00001", "True"), *ready("Configuration/app", "Unknown", "False Late", "True"))

    golden = reduce("create", "v0.50.0", [slow, quick])

    assert golden.required == {
        "Revision/app-00001": {"Ready": ["True"]},
        "Configuration/app": {"Ready": ["Unknown", "True"]},
    }
    assert golden.final == {"Revision/app-00001": {"Ready": "True"}, "Configuration/app": {"Ready": "True"}}
    assert golden.orders == [("Ready", "Revision/app-00001", "Configuration/app")]
    assert golden.seen["Configuration"] == {"Ready": ["False Late", "True", "Unknown"]}
    assert Golden.from_dict(yaml.safe_load(yaml.safe_dump(golden.to_dict()))) == golden


def test_an_order_that_one_recording_breaks_is_none() -> None:
    first = trace(*ready("Route/app", "True"), *ready("Service/app", "True"))
    other = trace(*ready("Service/app", "True"), *ready("Route/app", "True"))
    assert reduce("create", "v0.50.0", [first, other]).orders == []


def test_a_final_value_in_which_recordings_differ_is_none() -> None:
    traces = [trace(*ready("Service/app", "True")), trace(*ready("Service/app", "False Broken"))]
    assert reduce("create", "v0.50.0", traces).final == {}


def test_nothing_cannot_be_reduced() -> None:
    with pytest.raises(ValueError, match="no recordings"):
        reduce("create", "v0.50.0", [])


WORDS = st.lists(st.sampled_from("abc"), max_size=8)


@given(WORDS, WORDS)
def test_a_common_subsequence_is_one_of_both(first: list[str], second: list[str]) -> None:
    found = common(first, second)
    assert is_subsequence(found, first)
    assert is_subsequence(found, second)
    assert len(found) == len(common(second, first))


@given(WORDS)
def test_a_sequence_has_all_in_common_with_itself(values: list[str]) -> None:
    assert common(values, values) == values


GOLDEN = reduce(
    "create",
    "v0.50.0",
    [trace(*ready("Route/app", "Unknown", "True"), *ready("Service/app", "Unknown OutOfDate", "True"))],
)


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ([*ready("Route/app", "Unknown", "True"), *ready("Service/app", "Unknown OutOfDate", "True")], []),
        (
            [*ready("Route/app", "Unknown", "True"), *ready("Service/app", "True")],
            ["Service/app Ready: was True, where Knative goes Unknown OutOfDate → True"],
        ),
        (
            [*ready("Service/app", "Unknown OutOfDate", "True"), *ready("Route/app", "Unknown", "True")],
            ["Service/app Ready: settles before Route/app has, in Knative always after it"],
        ),
        (
            [*ready("Route/app", "Unknown", "False Odd", "True"), *ready("Service/app", "Unknown OutOfDate", "True")],
            ["Route/app Ready: was 'False Odd', which Knative never showed"],
        ),
        (
            [
                *ready("Route/app", "Unknown", "True"),
                *ready("Service/app", "Unknown OutOfDate", "True", "Unknown OutOfDate"),
            ],
            ["Service/app Ready: ends as 'Unknown OutOfDate', Knative's as 'True'"],
        ),
    ],
)
def test_a_difference_is_told_in_a_sentence(seen: list[tuple[str, str, str]], said: list[str]) -> None:
    assert [str(one) for one in differences(GOLDEN, trace(*seen), vocabulary([GOLDEN]))] == said


def test_a_golden_trace_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert write_golden(GOLDEN, tmp_path).name == "create.yaml"
    assert read_goldens(tmp_path) == {"create": GOLDEN}


def test_a_value_that_another_case_has_shown_is_knatives_too() -> None:
    other = reduce("second", "v0.50.0", [trace(*ready("Route/app", "False Odd"))])
    seen = trace(
        *ready("Route/app", "Unknown", "False Odd", "True"), *ready("Service/app", "Unknown OutOfDate", "True")
    )
    assert differences(GOLDEN, seen, vocabulary([GOLDEN, other])) == []
