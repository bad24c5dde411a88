"""The times of a rollout: when the judge looks, when a step is over, when a pass is wanted in any case. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from clusters.base.objects import parse_timestamp
from serving.reconciler.rollout.state import Look, RolloutState, seconds_between
from serving.types.rollout import ALL, STEP_DURATION, Rollout

SETTLING = 60.0
"""s after a step is in force (the autoscaler's window): its averages then know nothing of the traffic before."""
BASELINE = STEP_DURATION
"""s: the most that the stable version is counted before a first step of 100 %, and no longer than a step takes."""
MOST_DOWN = 60.0
"""s that a candidate with traffic may stay down. The kubelet waits 0, 10, 20, 40 and 80 s before it restarts a process
again: a version whose process ends once has time to load, one that crashes five times in a row stays down longer."""
OVERDUE = 1.0
"""s until the next pass where this one did not do what was due: what kept it from that will not be gone at once."""


def target_of(rule: Rollout, state: RolloutState) -> int:
    """Percent of the step; the last one's when the spec has fewer steps by now."""
    return rule.steps[min(state.step, len(rule.steps) - 1)]


def step_is_over(rule: Rollout, state: RolloutState, now: datetime) -> bool:
    """Whether the step is in force for as long as it takes at least."""
    return bool(state.seen_at) and not state.paused_at and seconds_between(state.seen_at, now) >= rule.step_duration


def look_is_due(rule: Rollout, state: RolloutState, now: datetime) -> bool:
    """Whether the judge should look now: every interval, and at once when the step's time is over."""
    if not state.runs or not (state.percent or is_baseline(rule, state)):
        return False
    return state.look is None or seconds_to_look(rule, state, now, state.look) <= 0.0


def is_baseline(rule: Rollout, state: RolloutState) -> bool:
    """Whether the stable version is counted before the candidate has traffic: the step to come leaves it none."""
    return not state.percent and target_of(rule, state) >= ALL


def seconds_of_baseline(rule: Rollout, state: RolloutState, now: datetime) -> float:
    """Seconds that a first step of 100 % waits at least; none or less when it need not."""
    if not is_baseline(rule, state):
        return 0.0
    return min(rule.step_duration, BASELINE) - seconds_between(state.since, now)


def seconds_to_settle(state: RolloutState, now: datetime) -> float | None:
    """Seconds until the averages know nothing of the traffic before; None when no traffic settles, or it has.

    Before the first step and after a rollback it is the stable version's, which has it all again; on the way to a step
    it stands still since its last part, in a pause since then at the latest.
    """
    if state.steady:
        return None
    if state.runs:
        begin = state.seen_at or (state.paused_at if state.percent else "") or state.since
    else:
        begin = state.ended_at if state.phase == "RolledBack" else ""
    return SETTLING - seconds_between(begin, now) if begin else None


def seconds_to_look(rule: Rollout, state: RolloutState, now: datetime, last: Look) -> float:
    """Seconds until the next look; none or less when it is due."""
    left = rule.judge.interval - seconds_between(last.at, now)
    if state.seen_at and not state.paused_at:
        end = parse_timestamp(state.seen_at) + timedelta(seconds=rule.step_duration)
        if parse_timestamp(last.at) < end:
            left = min(left, (end - now).total_seconds())
    return left


def seconds_to_pass(rule: Rollout, state: RolloutState, now: datetime, *, looks: bool = True) -> float | None:
    """Seconds until the rollout wants a pass, though nothing changes in the cluster; None when it does not.

    Without `looks` nobody judges it now. Always more than 0: a pass that asked for another at once would never end.
    """
    due = [seconds_to_settle(state, now), *(_due(rule, state, now, looks) if state.runs else ())]
    soonest = min((one for one in due if one is not None), default=None)
    return soonest if soonest is None or soonest > 0.0 else OVERDUE


def _due(rule: Rollout, state: RolloutState, now: datetime, looks: bool) -> Iterator[float]:
    if state.down_since:
        yield MOST_DOWN - seconds_between(state.down_since, now)
    if looks and (state.percent or is_baseline(rule, state)):
        yield rule.judge.interval if state.look is None else seconds_to_look(rule, state, now, state.look)
    if state.phase != "Progressing":
        return
    if state.percent and not state.seen_at:
        yield rule.progress_deadline - seconds_between(state.since, now)
    baseline = seconds_of_baseline(rule, state, now)
    if baseline > 0.0:
        yield baseline
