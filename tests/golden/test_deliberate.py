"""What the table of deliberate differences takes out of a golden trace, and what it leaves."""

from __future__ import annotations

from tests.golden.comparison import differences, vocabulary
from tests.golden.deliberate import Deliberate, excused, widened
from tests.golden.reduction import reduce
from tests.golden.trace import Change, Trace

STEPS = [("Route/app", "Unknown"), ("Route/app", "Unknown Late"), ("Route/app", "True"), ("Service/app", "Unknown")]
KNATIVE = Trace(
    tuple(Change(number, obj, "Ready", value) for number, (obj, value) in enumerate(STEPS)),
    {"Route/app": {"Ready": "True"}, "Service/app": {"Ready": "Unknown"}},
)
GOLDEN = reduce("create", "v0.50.0", [KNATIVE])
OURS = Trace(
    (Change(1, "Route/app", "Ready", "Unknown"), Change(2, "Route/app", "Ready", "True Odd"), KNATIVE.changes[-1]),
    {"Route/app": {"Ready": "True Odd"}, "Service/app": {"Ready": "Unknown"}},
)
EXCUSE = Deliberate(
    "cr*", "Route/*", "Ready", "because", lacks=("Unknown Late", "True"), shows=("True Odd",), ends="True Odd"
)


def said(*table: Deliberate) -> list[str]:
    """What is wrong with our trace."""
    seen = widened(vocabulary([GOLDEN]), table)
    return [one.at for one in differences(excused(GOLDEN, table), OURS, seen)]


def test_without_an_excuse_every_difference_is_told() -> None:
    assert said() == ["Route/app Ready", "Route/app Ready", "Route/app Ready"]


def test_an_excuse_takes_its_values_out_and_nothing_else() -> None:
    assert said(EXCUSE) == []
    required = excused(GOLDEN, [EXCUSE]).required
    assert required == {"Route/app": {"Ready": ("Unknown",)}, "Service/app": {"Ready": ["Unknown"]}}


def test_an_excuse_may_name_another_way() -> None:
    other = Deliberate("create", "Route/*", "Ready", "because", goes=("Unknown", "True Odd"), ends="True Odd")
    assert excused(GOLDEN, [other]).required["Route/app"] == {"Ready": ("Unknown", "True Odd")}


def test_an_excuse_is_for_its_case_its_object_and_its_condition_only() -> None:
    others = (
        Deliberate("delete", "Route/*", "Ready", "", lacks=("Unknown Late", "True"), ends="True Odd"),
        Deliberate("create", "Service/*", "Ready", "", lacks=("Unknown Late", "True"), ends="Unknown"),
        Deliberate("create", "Route/*", "IngressReady", "", lacks=("Unknown Late", "True"), ends="True Odd"),
    )
    assert said(*others) == said()
