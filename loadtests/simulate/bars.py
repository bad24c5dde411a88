"""Required results of Knodel's policy on the traces in this repository, compared with other policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from loadtests.bench.figure import Figure
from loadtests.simulate.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Bar:
    """Required share `soon` of requests that wait at most 1 s, or the best possible share less `below_best`.

    `hours`: maximum replica-hours, as a multiple of those of Knative's rule.
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
    """Yield the results of `knodel` with the requirements, without those that refer to a policy that was not run."""
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
