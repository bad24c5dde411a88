"""What the judge is asked at a look, and what it answers: plain values, so that who only reads them needs no judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from serving.types.rollout import ALL

SHARPEST = 0.5
"""Share of the traffic beyond which nothing finer is asked: the stable version's side gets thin there."""
AT_FULL = 0.25
"""Share whose harm is asked at 100 %: the stable version's counts grow no more, and what full load breaks is large."""

ABOVE = "above."
"""Numbers of a verdict: before a metric's name, at how many looks in a row its value was above its `max`."""

UNANSWERED = "unanswered"
"""Number of a verdict on a step whose time is over: 1 when `onInsufficientTraffic: promote` may not pass it
(`serving.reconciler.rollout.judging.hanging`)."""

Decision = Literal["wait", "hold", "pass", "fail"]
"""`hold`: there is nothing to compare the candidate with, so no step passes or fails until that changes or a person
decides."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a rollout stands: percent of the candidate (1 to 100), number of steps, whether this one's time is over.

    `settled` says that the step is in force for an interval at least: what a metric tells may be of this step.
    """

    percent: int
    steps: int
    over: bool
    settled: bool = True

    @property
    def share(self) -> float:
        """Of the traffic, whose harm is asked for."""
        return AT_FULL if self.percent >= ALL else min(self.percent / ALL, SHARPEST)

    @property
    def stable_share(self) -> float:
        """Of the traffic that the stable version has."""
        return max(1.0 - self.percent / ALL, 0.0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a look found. `reasons` are sentences for people, `numbers` what they were made from (rates as shares of 1).

    `needed` among the numbers: requests that a candidate just as good as the stable version takes until it passes.
    """

    decision: Decision
    reasons: tuple[str, ...]
    numbers: Mapping[str, float] = field(default_factory=dict)
