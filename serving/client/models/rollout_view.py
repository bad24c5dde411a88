"""Show a rollout: its steps, the traffic, the judge's figures with their bounds, and what it waits for. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from clusters.base.errors import Invalid
from clusters.base.objects import Object, condition_of, generation_of, name_of, namespace_of, parse_timestamp
from serving.reconciler.rollout.judging.verdict import ABOVE
from serving.reconciler.rollout.state import RolloutState, join_reasons, rollout_of, seconds_between
from serving.types.lifecycle import CONFIGURATIONS_READY
from serving.types.model import history_of
from serving.types.rollout import ALL, Rollout

BAR: Final = 32
FULL, EMPTY = "█", "░"
METRIC: Final = "metric."
"""Prefix of the values of Prometheus metrics in the numbers of a verdict."""
Row = tuple[str, str, str, str, str]
HEADS: Final = ("compared", "stable", "candidate", "difference", "limit")


@dataclass(frozen=True, slots=True)
class RolloutView:
    """A rollout at one moment, as `knodel rollout` prints it.

    `step` counts from 1. `traffic` are (revision, percent) as the gateway applies them. `seconds_left` is the rest of
    the step's minimum time; None unless the step runs. `waits_for` are the reasons of the present phase.
    """

    model: str
    namespace: str
    state: RolloutState
    version: str
    rule: Rollout
    traffic: tuple[tuple[str, int], ...]
    seconds: float
    seconds_left: float | None
    judged_ago: float | None

    @property
    def step(self) -> int:
        """The number of the step, from 1."""
        return min(self.state.step + 1, len(self.rule.steps))

    @property
    def candidate_percent(self) -> int:
        """The candidate's share that the gateway applies, else the one that was requested."""
        found = [percent for revision, percent in self.traffic if revision == self.state.candidate]
        others = any(revision == self.state.stable for revision, _ in self.traffic)
        return sum(found) if found or others else self.state.percent

    @property
    def waits_for(self) -> str:
        """The reasons of the present phase without those of the judge, and the rest of the step's time."""
        judged = self.state.judgement.verdict.reasons if self.state.judgement is not None else ()
        left = [f"at least {self.seconds_left:.0f} s left in this step"] if self.seconds_left else []
        return join_reasons([*(one for one in self.state.reasons if one not in judged), *left])

    @property
    def judge(self) -> str:
        """The last decision of the judge; for `wait` only its first reason, since `comparisons` has the figures."""
        if self.state.judgement is None:
            return ""
        verdict = self.state.judgement.verdict
        ago = f", {self.judged_ago:.0f} s ago" if self.judged_ago is not None and self.state.runs else ""
        reasons = verdict.reasons[:1] if verdict.decision == "wait" else verdict.reasons
        return f"{verdict.decision}{ago}: {join_reasons(reasons)}"

    def to_json(self) -> dict[str, Any]:
        """Return the view as a line of JSON; `rollout` is `status.rollout` of the Model."""
        return {
            "model": self.model,
            "namespace": self.namespace,
            "phase": self.state.phase,
            "candidate": self.state.candidate,
            "stable": self.state.stable,
            "step": self.step,
            "steps": list(self.rule.steps),
            "percent": self.candidate_percent,
            "traffic": [{"revision": revision, "percent": percent} for revision, percent in self.traffic],
            "secondsLeft": None if self.seconds_left is None else round(self.seconds_left, 1),
            "rollout": self.state.to_json(),
        }


def view_of(model: Object, now: datetime) -> RolloutView | None:
    """Return the view of a Model's last rollout; None if it had none."""
    state = rollout_of(model)
    if state is None:
        return None
    rule = _rule_of(model)
    versions = {entry.revision: entry.version for entry in history_of(model)}
    entries = (model.get("status") or {}).get("traffic") or ()
    since = state.seen_at if state.phase == "Progressing" else ""
    return RolloutView(
        model=name_of(model),
        namespace=namespace_of(model),
        state=state,
        version=versions.get(state.candidate, ""),
        rule=rule,
        traffic=tuple((str(one.get("revision")), int(one.get("percent") or 0)) for one in entries),
        seconds=max(0.0, seconds_between(state.started_at, now) if state.runs else _duration(state)),
        seconds_left=max(0.0, rule.step_duration - seconds_between(since, now)) if since else None,
        judged_ago=None if state.judgement is None else max(0.0, seconds_between(state.judgement.at, now)),
    )


def is_settled(model: Object) -> bool:
    """Return whether no rollout is about to begin for the present spec: its version has started, or has failed."""
    observed = int((model.get("status") or {}).get("observedGeneration", 0)) >= generation_of(model)
    return observed and (condition_of(model, CONFIGURATIONS_READY) or {}).get("status") not in (None, "Unknown")


def _duration(state: RolloutState) -> float:
    return seconds_between(state.started_at, parse_timestamp(state.ended_at)) if state.ended_at else 0.0


def _rule_of(model: Object) -> Rollout:
    """Return `spec.rollout` with its defaults; the defaults if it was removed, or is of a newer release."""
    from serving.types.validation import read_model  # takes 40 ms

    try:
        return read_model(model).spec.rollout or Rollout()
    except Invalid:
        return Rollout()


def title(view: RolloutView) -> str:
    """Return the line with the phase, both versions and the duration."""
    state = view.state
    version = f" ({view.version})" if view.version else ""
    return f"{view.model}: {state.phase}, {state.candidate}{version} after {state.stable}, {duration(view.seconds)}"


def steps_line(view: RolloutView) -> str:
    """Return the steps, with the present one in brackets and a mark after finished ones.

    Example: `10 % done  [50 %]  100 %`
    """
    words = []
    for number, percent in enumerate(view.rule.steps, start=1):
        is_done = number < view.step or view.state.phase == "Promoted"
        is_now = number == view.step and view.state.runs
        words.append(f"{percent} % done" if is_done else f"[{percent} %]" if is_now else f"{percent} %")
    return "  ".join(words)


def bar(percent: int) -> str:
    """Return a bar of the candidate's share."""
    full = round(BAR * percent / ALL)
    return FULL * full + EMPTY * (BAR - full)


def change_line(view: RolloutView) -> str:
    """Return the line that is printed for each change where the view cannot be redrawn, without its durations."""
    state = view.state
    verdict = f"; judge: {state.judgement.verdict.decision}" if state.judgement is not None and state.runs else ""
    reasons = f": {join_reasons(state.reasons)}" if state.reasons else ""
    step = f"step {view.step} of {len(view.rule.steps)}, {view.candidate_percent} % of the traffic"
    return f"{view.model}: {state.phase}, {state.candidate}, {step}{reasons}{verdict}"


def comparisons(view: RolloutView) -> list[Row]:
    """Return the figures of the last verdict: for each comparison both versions, the difference and its limit.

    Differences of rates are bounds at the judge's confidence, in percentage points.
    """
    numbers = view.state.judgement.verdict.numbers if view.state.judgement is not None else {}
    judge = view.rule.judge
    quantile = f"p{100 * judge.quantile:g}"
    limit = f"({quantile} x {judge.max_latency_ratio:g})"
    rows = [
        _counts(numbers),
        *_rates("errors", "errors", numbers),
        *_rates("slow", f"slow {limit}", numbers),
        *_latency("latency", f"latency {quantile}", numbers),
        *_rates("slowTokens", f"slow tokens {limit}", numbers),
        *_latency("interTokenLatency", f"between tokens {quantile}", numbers),
    ]
    metrics = {metric.name: metric.max for metric in judge.metrics}
    for name, most in metrics.items():
        value, above = numbers.get(f"{METRIC}{name}"), numbers.get(f"{ABOVE}{name}")
        shown = "no value" if value is None else f"{value:.6g}"
        rows.append((name, "", shown, f"above in {above:.0f} judgements" if above else "", f"at most {most:.6g}"))
    for what, label in (("hanging", "hanging requests"), ("left", "callers that left"), ("refused", "4xx responses")):
        both = [numbers.get(f"{side}.{what}") for side in ("stable", "candidate")]
        if any(both):
            rows.append((label, f"{both[0] or 0:.0f}", f"{both[1] or 0:.0f}", "", ""))
    return [row for row in rows if any(row[1:])]


def _counts(numbers: Mapping[str, float]) -> Row:
    found = [numbers.get(f"{side}.requests") for side in ("stable", "candidate")]
    needed = numbers.get("needed")
    shown = ["" if value is None else f"{value:.0f}" for value in found]
    return ("requests", shown[0], shown[1], "", f"about {needed:.0f} needed" if needed else "")


def _rates(prefix: str, label: str, numbers: Mapping[str, float]) -> Sequence[Row]:
    stable, candidate = numbers.get(f"stable.{prefix}"), numbers.get(f"candidate.{prefix}")
    if stable is None or candidate is None:
        return []
    lower, upper = (numbers.get(f"{prefix}.{bound}") for bound in ("lower", "upper"))
    between = "" if lower is None or upper is None else f"{_points(lower)} to {_points(upper)} points"
    harm = numbers.get(f"{prefix}.harm")
    return [(label, f"{stable:.2%}", f"{candidate:.2%}", between, f"{_points(harm)} points" if harm else "")]


def _latency(name: str, label: str, numbers: Mapping[str, float]) -> Sequence[Row]:
    stable, candidate = numbers.get(f"stable.{name}"), numbers.get(f"candidate.{name}")
    if stable is None and candidate is None:
        return []
    ratio = f"{candidate / stable:.2f} x" if stable and candidate else ""
    return [(label, _milliseconds(stable), _milliseconds(candidate), ratio, "")]


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1000 * seconds:.3g} ms"


def _points(share: float) -> str:
    return f"{100 * share:+.3g}"


def duration(seconds: float) -> str:
    """Return a duration such as `42s`, `3m05s` or `2h10m`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3_600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3_600}h{whole % 3_600 // 60:02}m"
