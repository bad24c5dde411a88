"""The rollout of a Model in one pass: what the judge sees of it, where it goes, and when it wants another pass.

The totals of a step live in this process between two writes of the status, so that a write that failed loses no answer
and a repeated one counts none twice; after a restart they go on from what the status says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce

from clusters.base.objects import Key, Object, key_of, uid_of
from serving.reconciler.plan import Plan
from serving.reconciler.rollout.history import Shares
from serving.reconciler.rollout.inputs import Sight
from serving.reconciler.rollout.judging.counts import Counts
from serving.reconciler.rollout.judging.judge import judge
from serving.reconciler.rollout.judging.observer_port import Metrics, Observer
from serving.reconciler.rollout.judging.queries import filled
from serving.reconciler.rollout.judging.verdict import Stage, Verdict
from serving.reconciler.rollout.schedule import look_is_due, seconds_to_pass, step_is_over
from serving.reconciler.rollout.split import Situation, is_by_hand
from serving.reconciler.rollout.state import NO_ANSWERS, Look, RolloutState, moment, rollout_of, seconds_between
from serving.reconciler.rollout.steps import advance_rollout
from serving.reconciler.rollout.versions import version_with
from serving.types.model import Cause, Model
from serving.types.rollout import ALL, MetricRule, Rollout

Step = tuple[str, str, int, int]
"""Candidate, start of its rollout, step, percent: what the totals of a step are told apart by."""
BASELINE = "the stable version is counted, before the candidate has any traffic: the step to come leaves it none"
"""What the judge says before a first step of 100 %."""
DEFAULT = "default"
"""The namespace that the command takes when none is named."""
CHANGE_OF_LEADER = 10.0
"""s: how long nobody leads after a leader's death, at most (`clusters/runtime/manager/process.py`)."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What the judge saw in this pass; `look` None when it was not its time."""

    look: Look | None = None
    stable: Counts = NO_ANSWERS
    candidate: Counts = NO_ANSWERS


NOT_LOOKED = Looked()


@dataclass(frozen=True, slots=True)
class _Totals:
    step: Step
    stable: Counts
    candidate: Counts


class Rollouts:
    """Looks at the rollouts that run."""

    def __init__(self, observer: Observer, metrics: Metrics) -> None:
        self._observer = observer
        self._metrics = metrics
        self._totals: dict[Key, _Totals] = {}
        self._watched: dict[Key, str] = {}

    async def look(self, model: Model, situation: Situation, now: datetime) -> Looked:
        """The judge's look, when it is due."""
        state, rule = situation.rollout, model.spec.rollout
        if state is None or not state.runs or rule is None or is_by_hand(model.spec):
            self.forget(key_of(model.object))
            return NOT_LOOKED
        if not look_is_due(rule, state, now):
            return NOT_LOOKED
        totals = await self._read(model, situation, state)
        if not state.percent:
            verdict = Verdict("wait", (BASELINE,), {"stable.requests": float(totals.stable.requests)})
            return Looked(Look(verdict, moment(now)), totals.stable)
        asked = _queries(model, situation, state, rule)
        readings = await self._metrics.values(asked) if asked else {}
        over = step_is_over(rule, state, now)
        stage = Stage(state.percent, _stages(rule, state), over, over or _is_settled(rule, state, now))
        former = state.look.verdict.numbers if state.look is not None else {}
        name = model.name if model.namespace == DEFAULT else f"{model.name} -n {model.namespace}"
        verdict = judge(rule.judge, totals.stable, totals.candidate, stage, readings, former, name)
        return Looked(Look(verdict, moment(now)), totals.stable, totals.candidate)

    async def _read(self, model: Model, situation: Situation, state: RolloutState) -> _Totals:
        """The totals since the percent changed, with what came since the last reading."""
        key, step = key_of(model.object), (state.candidate, state.started_at, state.step, state.percent)
        totals = self._totals.get(key)
        if totals is None or totals.step != step:
            totals = _Totals(step, state.stable_counts, state.candidate_counts)
        stable, candidate = (_revisions(situation, one) for one in (state.stable, state.candidate))
        watched = self._watched[key] = f"{uid_of(model.object)} {state.started_at}"
        seen = await self._observer.read(watched, model.namespace, {*stable, *candidate})
        totals = replace(
            totals,
            stable=totals.stable.then(_together(seen, stable)),
            candidate=totals.candidate.then(_together(seen, candidate)),
        )
        self._totals[key] = totals
        return totals

    def forget(self, key: Key) -> None:
        """Nobody looks any more: the rollout is over, the Model gone, or traffic by hand decides."""
        self._totals.pop(key, None)
        watched = self._watched.pop(key, None)
        if watched is not None:
            self._observer.forget(watched)


def rollout_after(model: Model, plan: Plan, shares: Shares, looked: Looked, now: datetime) -> RolloutState | None:
    """Where the rollout stands after this pass."""
    sight = Sight(
        shares=shares,
        command=model.command,
        by_hand=is_by_hand(model.spec),
        look=looked.look,
        stable_counts=looked.stable,
        candidate_counts=looked.candidate,
        reach=plan.capacity.reach,
        standing=plan.capacity.standing,
    )
    return advance_rollout(model.spec.rollout, plan.situation, sight, plan.situation.rollout, now)


def up_to(now: datetime, plan: Plan, found_at: datetime | None, rule: Rollout | None = None) -> Plan:
    """The plan with a rollout none of whose times are to come: a wait from such a one would never end.

    `found_at`: when this process found it under way and has written nothing of it since, else None.
    """
    state = plan.situation.rollout
    if state is None:
        return plan
    if found_at is not None:
        state = state.taken_up(found_at, _unwritten_for(rule or Rollout(), state) + CHANGE_OF_LEADER)
    return replace(plan, situation=replace(plan.situation, rollout=state.not_after(now)))


def _unwritten_for(rule: Rollout, state: RolloutState) -> float:
    """The most seconds until a rollout that the judge looks at is written again: until the next look."""
    ends = state.seen_at and not state.paused_at
    return min(rule.judge.interval, rule.step_duration) if ends else rule.judge.interval


def seconds_until_pass(model: Model, status: Object, now: datetime) -> float | None:
    """When the rollout of this status wants a pass though nothing changes; None when it does not."""
    state = rollout_of({"status": status})
    if state is None:
        return None
    looks = model.spec.rollout is not None and not is_by_hand(model.spec)
    return seconds_to_pass(model.spec.rollout or Rollout(), state, now, looks=looks)


def settled_shares(shares: Shares, rollout: RolloutState | None) -> Shares:
    """The shares as the history is to see them: a candidate has it all only once its last step is passed."""
    if rollout is None or not rollout.runs or shares.get(rollout.candidate, 0) < ALL:
        return shares
    return {**shares, rollout.candidate: ALL - 1}


def cause_of(model: Model, situation: Situation, rollout: RolloutState | None) -> Cause:
    """Why what has the traffic now has it: the Model's own cause, but for a version that a rollout fell back to."""
    newest = situation.newest
    if rollout is None or rollout.phase != "RolledBack" or newest is None or newest.revision != rollout.candidate:
        return model.cause
    return Cause("rollback", f"{rollout.stable}@{rollout.started_at}")


def _together(seen: Mapping[str, Counts], revisions: Iterable[str]) -> Counts:
    return reduce(Counts.merge, (seen[one] for one in revisions if one in seen), NO_ANSWERS)


def _is_settled(rule: Rollout, state: RolloutState, now: datetime) -> bool:
    """Whether the step is in force for an interval."""
    return bool(state.seen_at) and seconds_between(state.seen_at, now) >= rule.judge.interval


def _stages(rule: Rollout, state: RolloutState) -> int:
    """How often the counts begin anew at most: at each step, and at each replica that comes by turns."""
    return len(rule.steps) + sum(state.stood.values())


def _queries(model: Model, situation: Situation, state: RolloutState, rule: Rollout) -> tuple[MetricRule, ...]:
    """The judge's, about the revisions of both versions."""
    stable, candidate = (_revisions(situation, one) for one in (state.stable, state.candidate))
    return filled(rule.judge.metrics, namespace=model.namespace, model=model.name, stable=stable, candidate=candidate)


def _revisions(situation: Situation, revision: str) -> tuple[str, ...]:
    version = version_with(situation.versions, revision)
    return tuple(version.revisions.values()) if version is not None else (revision,)
