"""Geometry of the drawings that the server renders as SVG: rollouts, bounds of verdicts, starts. Pure.

All lengths are in the unit of the drawing's `viewBox`, whose width is WIDTH.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from clusters.base.objects import parse_timestamp
from serving.client.models.rollout_view import RolloutView
from serving.reconciler.rollout.state import join_reasons

WIDTH: Final = 1000.0
LEAST: Final = 3.0
"""Width of the smallest bar, so that a short stage can be seen."""
GAP: Final = 8.0
"""Between two steps of a rollout."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar from `left`, `width` wide, with a text for people and the class of its colour."""

    left: float
    width: float
    label: str
    kind: str


@dataclass(frozen=True, slots=True)
class StartRow:
    """A start of a replica: its stages one after the other, on the scale of the longest start."""

    at: str
    pod: str
    revision: str
    kind: str
    milliseconds: float | None
    bars: tuple[Bar, ...]
    server: tuple[tuple[str, float], ...]


def start_rows(starts: Sequence[Mapping[str, Any]]) -> list[StartRow]:
    """Return the starts, newest first, with bars on one scale."""
    longest = max((_number(one.get("milliseconds")) or 0.0 for one in starts), default=0.0) or 1.0
    rows = []
    for start in reversed(starts):
        bars, left = [], 0.0
        for step in start.get("steps") or ():
            took = _number(step.get("milliseconds")) or 0.0
            width = WIDTH * took / longest
            name = str(step.get("name") or "")
            bars.append(Bar(round(left, 1), round(max(LEAST, width), 1), f"{name} {took:g} ms", name))
            left += width
        server = tuple((str(name), float(value)) for name, value in (start.get("server") or {}).items()
                       if isinstance(value, int | float))  # fmt: skip
        rows.append(
            StartRow(
                at=str(start.get("at") or ""),
                pod=str(start.get("pod") or ""),
                revision=str(start.get("revision") or ""),
                kind="warm" if start.get("kind") == "warm" else "cold",
                milliseconds=_number(start.get("milliseconds")),
                bars=tuple(bars),
                server=server,
            )
        )
    return rows


@dataclass(frozen=True, slots=True)
class StepBar:
    """A step of a rollout: its place and height in the drawing, its state, its duration, and its last verdict."""

    left: float
    width: float
    height: float
    percent: int
    state: str
    since: str
    until: str
    verdict: str
    seconds: float


def step_bars(view: RolloutView, now: datetime) -> list[StepBar]:
    """Return the steps of a rollout: finished ones, the present one, and those to come.

    All are equally wide, as their texts below the drawing are.
    """
    state, steps = view.state, view.rule.steps
    spans: list[tuple[int, str, str, str, str, float]] = []
    for passed in state.passed:
        verdict = passed.judgement.verdict if passed.judgement is not None else None
        why = f"{verdict.decision}: {join_reasons(verdict.reasons)}" if verdict is not None else "passed"
        spans.append((passed.percent, "done", passed.since, passed.until, why, _seconds(passed.since, passed.until)))
    if state.runs or state.phase in ("RolledBack", "Failed"):
        until = state.ended_at or now.isoformat()
        kind = "now" if state.runs else "failed"
        shown = view.candidate_percent if state.runs else (steps[min(state.step, len(steps) - 1)] if steps else 0)
        spans.append((shown, kind, state.since, state.ended_at, view.judge, _seconds(state.since, until)))
    if state.runs:
        spans.extend((percent, "ahead", "", "", "", view.rule.step_duration) for percent in steps[len(spans) :])
    width = WIDTH / max(1, len(spans))
    return [
        StepBar(round(index * width, 1), round(width - GAP, 1), float(percent), percent, kind, since, until, why, took)
        for index, (percent, kind, since, until, why, took) in enumerate(spans)
    ]


@dataclass(frozen=True, slots=True)
class BoundsRow:
    """A difference of two rates in percentage points: its interval on a scale that also has zero and the limit."""

    label: str
    lower: float
    upper: float
    limit: float
    left: float
    width: float
    zero: float
    limit_at: float
    verdict: str


def bounds_rows(numbers: Mapping[str, float]) -> list[BoundsRow]:
    """Return the intervals of a verdict: how much more often the candidate fails, or is slow, than the stable one."""
    rows = []
    for prefix, label in (("errors", "errors"), ("slow", "slow responses"), ("slowTokens", "slow tokens")):
        lower, upper, harm = (numbers.get(f"{prefix}.{part}") for part in ("lower", "upper", "harm"))
        if lower is None or upper is None or not harm:
            continue
        least, most = min(lower, -harm, 0.0), max(upper, 1.5 * harm)

        def place(value: float, least: float = least, most: float = most) -> float:
            return round(WIDTH * (value - least) / (most - least), 1)

        verdict = "within the limit" if upper <= harm else "above the limit" if lower > harm else "undecided"
        left = place(lower)
        rows.append(
            BoundsRow(
                label=label,
                lower=100 * lower,
                upper=100 * upper,
                limit=100 * harm,
                left=left,
                width=max(LEAST, round(place(upper) - left, 1)),
                zero=place(0.0),
                limit_at=place(harm),
                verdict=verdict,
            )
        )
    return rows


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _seconds(since: str, until: str) -> float:
    try:
        return max(0.0, (parse_timestamp(until) - parse_timestamp(since)).total_seconds())
    except (TypeError, ValueError):
        return 0.0
