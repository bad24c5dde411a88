"""The schedule of a rollout: when a judgement is due, when a step is over, when the next pass is due. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from clusters.base.objects import parse_timestamp
from serving.reconciler.rollout.state import Judgement, RolloutState, seconds_between
from serving.types.rollout import ALL, STEP_DURATION, Rollout

SETTLING = 60.0
"""s after a step is in effect (the autoscaler's window): its averages then no longer contain the traffic before."""
BASELINE = STEP_DURATION
"""s: the longest measurement of the stable version before a first step of 100 %. It is never longer than a step."""
MOST_DOWN = 60.0
"""s that a candidate with traffic may be down. The kubelet waits 0, 10, 20, 40 and 80 s before it restarts a process
again. A version whose process ends once has time to load; one that crashes five times in a row is down for longer."""
OVERDUE = 1.0
"""s until the next pass when this one could not do what was due: the obstacle will not disappear at once."""


def target_of(rule: Rollout, state: RolloutState) -> int:
    """Return the percent of the present step; that of the last step when the spec now has fewer steps."""
    return rule.steps[min(state.step, len(rule.steps) - 1)]


def step_is_over(rule: Rollout, state: RolloutState, now: datetime) -> bool:
    """Return whether the step has been in effect for `stepDuration`."""
    return bool(state.seen_at) and not state.paused_at and seconds_between(state.seen_at, now) >= rule.step_duration


def judgement_is_due(rule: Rollout, state: RolloutState, now: datetime) -> bool:
    """Return whether a judgement is due: every `judge.interval`, and when the step's time is over."""
    if not state.runs or not (state.percent or is_baseline(rule, state)):
        return False
    return state.judgement is None or seconds_to_judgement(rule, state, now, state.judgement) <= 0.0


def is_baseline(rule: Rollout, state: RolloutState) -> bool:
    """Return whether to measure the stable version before the first step, because that step leaves it no traffic."""
    return not state.percent and target_of(rule, state) >= ALL


def seconds_of_baseline(rule: Rollout, state: RolloutState, now: datetime) -> float:
    """Return the seconds until a first step of 100 % may begin; 0 or less when it may begin now."""
    if not is_baseline(rule, state):
        return 0.0
    return min(rule.step_duration, BASELINE) - seconds_between(state.since, now)


def seconds_to_settle(state: RolloutState, now: datetime) -> float | None:
    """Return the seconds until the autoscaler's averages contain only the present traffic; None when they do already.

    Before the first step and after a rollback this is the stable version's traffic, which is all of it. On the way to a
    step the traffic is constant since its last change, and in a pause since the pause at the latest.
    """
    if state.steady:
        return None
    if state.runs:
        begin = state.seen_at or (state.paused_at if state.percent else "") or state.since
    else:
        begin = state.ended_at if state.phase == "RolledBack" else ""
    return SETTLING - seconds_between(begin, now) if begin else None


def seconds_to_judgement(rule: Rollout, state: RolloutState, now: datetime, last: Judgement) -> float:
    """Return the seconds until the next judgement; 0 or less when it is due."""
    left = rule.judge.interval - seconds_between(last.at, now)
    if state.seen_at and not state.paused_at:
        end = parse_timestamp(state.seen_at) + timedelta(seconds=rule.step_duration)
        if parse_timestamp(last.at) < end:
            left = min(left, (end - now).total_seconds())
    return left


def seconds_to_pass(rule: Rollout, state: RolloutState, now: datetime, *, judged: bool = True) -> float | None:
    """Return the seconds until the rollout needs a pass although nothing changes in the cluster; None when it does not.

    `judged`: whether the judge decides on the rollout at present. The result is always more than 0: passes that ask for
    another one at once would never end.
    """
    due = [seconds_to_settle(state, now), *(_due(rule, state, now, judged) if state.runs else ())]
    soonest = min((one for one in due if one is not None), default=None)
    return soonest if soonest is None or soonest > 0.0 else OVERDUE


def _due(rule: Rollout, state: RolloutState, now: datetime, judged: bool) -> Iterator[float]:
    if state.down_since:
        yield MOST_DOWN - seconds_between(state.down_since, now)
    if judged and (state.percent or is_baseline(rule, state)):
        yield (
            rule.judge.interval if state.judgement is None else seconds_to_judgement(rule, state, now, state.judgement)
        )
    if state.phase != "Progressing":
        return
    if state.percent and not state.seen_at:
        yield rule.progress_deadline - seconds_between(state.since, now)
    baseline = seconds_of_baseline(rule, state, now)
    if baseline > 0.0:
        yield baseline
