"""Lines about rollouts, schedules, adapters and warm pools, which several verbs print."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from autoscaler.schedules import DEFAULT_ZONE, InvalidSchedules, Opening, Schedule, opening
from autoscaler.warmpool.spec import AUTO
from clusters.base.durations import parse_duration
from clusters.base.objects import Object, condition_of, name_of
from serving.control_api.table import format_of_pool
from serving.reconciler.rollout.judging.verdict import Verdict
from serving.reconciler.rollout.state import RolloutState, join_reasons, rollout_of
from serving.types.lifecycle import ADAPTERS_READY


def rollout_lines(model: Object) -> list[str]:
    """Return lines that describe the rollout of a Model; none if it had no rollout."""
    state = rollout_of(model)
    if state is None:
        return []
    lines = [f"Rollout: {state.phase}, {state.candidate} after {state.stable}, {_where(model, state)}"]
    lines += [f"  {join_reasons(state.reasons)}"] if state.reasons else []
    for passed in state.passed:
        reasons = f": {join_reasons(passed.judgement.verdict.reasons)}" if passed.judgement is not None else ""
        lines.append(f"  {passed.until}  {passed.percent:>3} %  done{reasons}")
    if state.judgement is not None:
        verdict = state.judgement.verdict
        if _has_no_requests(verdict):
            return [*lines, f"  {state.judgement.at}  judge: {verdict.decision}: no requests to compare yet"]
        lines.append(f"  {state.judgement.at}  judge: {verdict.decision}: {join_reasons(verdict.reasons)}")
        lines.append("  " + ", ".join(f"{name} {value:g}" for name, value in verdict.numbers.items()))
    return lines


def _has_no_requests(verdict: Verdict) -> bool:
    """Return whether the judge had no data: no response of the candidate, and no pending requests."""
    others = any(name.startswith("metric.") or name.endswith(".inFlight") for name in verdict.numbers)
    return verdict.decision == "wait" and verdict.numbers.get("candidate.requests") == 0 and not others


def rollout_summary(model: Object) -> str:
    """Return a short description of a running rollout; empty if none runs."""
    state = rollout_of(model)
    return f"rollout {state.phase.lower()}, {_where(model, state)}" if state is not None and state.runs else ""


def _where(model: Object, state: RolloutState) -> str:
    steps = len((model["spec"].get("rollout") or {}).get("steps") or ())
    of = f" of {steps}" if steps else ""
    if not state.runs:
        return f"ended at {state.ended_at} in step {state.step + 1}{of}"
    since = f"applied since {state.seen_at}" if state.seen_at else f"requested at {state.since}"
    return f"step {state.step + 1}{of}: {state.percent} %, {since}"


def last_seen(event: Object) -> str:
    """Return the time of an Event's last occurrence; writers of `events.k8s.io` set only `eventTime`."""
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")


def schedule_lines(model: Object, now: datetime) -> list[str]:
    """Return a headline and a line for each schedule of the Model at `now` (aware); nothing without schedules."""
    lines = []
    for entry in model["spec"].get("schedules") or ():
        try:
            zone, seconds = entry.get("timeZone") or DEFAULT_ZONE, parse_duration(entry["duration"])
            found = opening(Schedule(entry["cron"], seconds, int(entry["minReplicas"]), zone), now)
        except (AttributeError, KeyError, TypeError, ValueError, InvalidSchedules):
            continue  # admission refuses invalid schedules, and the condition Ready reports them
        lines.append(_schedule_line(found))
    return ["Schedules:", *lines] if lines else []


def adapters_text(model: Object) -> str:
    """Return the names of a language model's adapters, and why not all replicas serve them; "" without any."""
    adapters = (model["spec"].get("llm") or {}).get("adapters") or ()
    names = ", ".join(str(one.get("name")) for one in adapters)
    condition = condition_of(model, ADAPTERS_READY) or {}
    if not names or condition.get("status") in ("True", None):
        return names
    return f"{names} ({condition.get('reason')}: {condition.get('message')})"


def _schedule_line(found: Opening) -> str:
    schedule = found.schedule
    if found.until is None:
        return f"  {schedule}: closed, and never opens again"
    until = found.until.astimezone(ZoneInfo(schedule.time_zone)).strftime("%a %Y-%m-%d %H:%M")
    count = f"at least {schedule.min_replicas} replica{'s' if schedule.min_replicas > 1 else ''}"
    return f"  {schedule}: {f'open, {count} until' if found.is_open else f'closed, {count} from'} {until}"


def pool_summary(pool: Object) -> str:
    """Return one line about a pool that was created or changed."""
    name, size = name_of(pool), (pool.get("spec") or {}).get("size", AUTO)
    if size == 0:
        return f"warm pool {name} has size 0: `knodel pool set {name} --size 1` enables it"
    models = f"{format_of_pool(pool)} models"
    return f"warm pool {name} has size {size}, for {models}: `knodel pool list` shows its members"
