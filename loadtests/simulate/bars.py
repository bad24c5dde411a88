"""What Knodel's policy has to reach on the traces that come with the project, beside other policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from loadtests.bench.figure import Figure
from loadtests.simulate.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Bar:
    """Of the requests at least the share `soon` is to wait ≤ 1 s, or the best possible share less `below_best`.

    `hours`: times the replica-hours of Knative's rule that may be paid.
    """

    soon: float | None = None
    below_best: float | None = None
    hours: float | None = None


BARS: Mapping[tuple[str, float], Bar] = {
    ("code", 30.0): Bar(soon=0.95, hours=1.0),
    ("conv", 2.5): Bar(soon=0.996, hours=1.0),
    ("conv", 30.0): Bar(soon=0.988, hours=1.1),
    ("conv", 120.0): Bar(below_best=0.01),
}
"""By trace and seconds of a start."""


def figures(bar: Bar, outcomes: Mapping[str, Outcome]) -> Iterator[Figure]:
    """What `knodel` reached beside the aims; those that refer to a policy that was not run are left out."""
    ours = outcomes.get("knodel")
    if ours is None:
        return
    if bar.soon is not None:
        yield Figure("wait at most 1 s", 100 * ours.soon, "%", 100 * bar.soon, least=True)
    if bar.below_best is not None and "best" in outcomes:
        aim = outcomes["best"].soon - bar.below_best
        yield Figure(
            f"wait at most 1 s; the best that starts from zero has {outcomes['best'].soon:.2%}",
            100 * ours.soon, "%", round(100 * aim, 3), least=True,
        )  # fmt: skip
    if bar.hours is not None and "knative" in outcomes:
        aim = bar.hours * outcomes["knative"].hours
        yield Figure(f"replica-hours, aim {bar.hours:g} times Knative's", ours.hours, "h", round(aim, 3))
