"""Input and result of a judgement, as plain values: readers of verdicts do not import the judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from serving.types.rollout import ALL

SHARPEST = 0.5
"""Share of the traffic above which the limit of harm does not decrease: the stable version has few requests there."""
AT_FULL = 0.25
"""Share for which harm is computed at 100 %: the stable version gets no further requests, and failures under full load
are large."""

ABOVE = "above."
"""Prefix of numbers in a verdict: the judgements in a row in which the metric's value was above its `max`."""

UNANSWERED = "unanswered"
"""Number in a verdict on a step whose time is over: 1 when `onInsufficientTraffic: promote` may not pass the step
(`serving.reconciler.rollout.judging.hanging`)."""

Decision = Literal["wait", "hold", "pass", "fail"]
"""`hold`: a comparison is impossible, so no step passes or fails until that changes or a user decides."""


@dataclass(frozen=True, slots=True)
class JudgedStep:
    """The stage of a rollout: percent of the candidate (1 to 100), number of steps, whether this one's time is over.

    `settled`: the step has been in force for `judge.interval`, so that metrics can reflect it.
    """

    percent: int
    steps: int
    over: bool
    settled: bool = True

    @property
    def share(self) -> float:
        """Return the candidate's share of the traffic for which harm is computed."""
        return AT_FULL if self.percent >= ALL else min(self.percent / ALL, SHARPEST)

    @property
    def stable_share(self) -> float:
        """Return the stable version's share of the traffic."""
        return max(1.0 - self.percent / ALL, 0.0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a judgement: a decision, reasons as sentences, and the numbers behind them (rates as shares of 1).

    The number `needed` is how many requests a candidate as good as the stable version needs to pass.
    """

    decision: Decision
    reasons: tuple[str, ...]
    numbers: Mapping[str, float] = field(default_factory=dict)
