"""The rollout of one Model in one pass: what the judge finds, what the rollout becomes, and when the next pass is due.

The request counts of a step are kept in this process between two writes of the status. So a failed write loses no
requests, and a repeated one counts none twice. After a restart they continue from the status.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from typing import Final

from autoscaler.reconciler.status import WAITING_FOR_GPU, start_failure_of
from clusters.base.objects import Key, Object, is_true, key_of, name_of, timestamp, uid_of
from serving.reconciler.observe import World
from serving.reconciler.plan import Plan
from serving.reconciler.rollout.history import Shares, advance_history
from serving.reconciler.rollout.judging.counts import Counts
from serving.reconciler.rollout.judging.judge import judge
from serving.reconciler.rollout.judging.observer_port import Metrics, Observer
from serving.reconciler.rollout.judging.queries import expand_queries
from serving.reconciler.rollout.judging.verdict import JudgedStep, Verdict
from serving.reconciler.rollout.outcomes import outbox_after
from serving.reconciler.rollout.schedule import judgement_is_due, seconds_to_pass, step_is_over
from serving.reconciler.rollout.split import Situation, is_by_hand
from serving.reconciler.rollout.state import NO_ANSWERS, Judgement, RolloutState, moment, rollout_of, seconds_between
from serving.reconciler.rollout.steps import RolloutInputs, advance_rollout
from serving.reconciler.rollout.versions import Version, shares_of, version_with
from serving.types.model import Cause, HistoryEntry, Model, history_of
from serving.types.rollout import ALL, Rollout

Step = tuple[str, str, int, int]
"""Candidate, start of its rollout, step, percent: identifies the step that totals belong to."""
BASELINE = "measuring the stable version before the candidate gets traffic: the next step leaves it none"
"""Reason of the verdict before a first step of 100 %."""
DEFAULT = "default"
"""The namespace that the command uses when none is given."""
CHANGE_OF_LEADER = 10.0
"""s: the longest time without a leader after a leader's death (`clusters/runtime/manager/process.py`)."""
MOST_AT_ONCE: Final = 2
"""Judgements at the same time: half of the workers of a controller."""


@dataclass(frozen=True, slots=True)
class JudgeResult:
    """The findings of the judge in one pass; `judgement` is None when none was due."""

    judgement: Judgement | None = None
    stable: Counts = NO_ANSWERS
    candidate: Counts = NO_ANSWERS


NOT_JUDGED = JudgeResult()


@dataclass(frozen=True, slots=True)
class _Totals:
    step: Step
    stable: Counts
    candidate: Counts


def is_judged(model: Model, state: RolloutState | None) -> bool:
    """Return whether the Model has a running rollout that its `spec.traffic` does not override."""
    return state is not None and state.runs and model.spec.rollout is not None and not is_by_hand(model.spec)


class RolloutJudge:
    """Reads the counts and metrics of running rollouts, and judges them."""

    def __init__(self, observer: Observer, metrics: Metrics) -> None:
        self._observer = observer
        self._metrics = metrics
        self._totals: dict[Key, _Totals] = {}
        self._watched: dict[Key, str] = {}

    async def judge(self, model: Model, situation: Situation, now: datetime) -> JudgeResult:
        """Return the judgement of this pass, or `NOT_JUDGED` when none is due."""
        state, rule = situation.rollout, model.spec.rollout
        if state is None or rule is None or not is_judged(model, state):
            self.forget(key_of(model.object))
            return NOT_JUDGED
        if not judgement_is_due(rule, state, now):
            return NOT_JUDGED
        totals = await self._read(model, situation, state)
        if not state.percent:
            verdict = Verdict("wait", (BASELINE,), {"stable.requests": float(totals.stable.requests)})
            return JudgeResult(Judgement(verdict, moment(now)), totals.stable)
        stable, candidate = (_revisions(situation, one) for one in (state.stable, state.candidate))
        queries = expand_queries(
            rule.judge.metrics, namespace=model.namespace, model=model.name, stable=stable, candidate=candidate
        )
        readings = await self._metrics.values(queries) if queries else {}
        over = step_is_over(rule, state, now)
        settled = bool(state.seen_at) and seconds_between(state.seen_at, now) >= rule.judge.interval
        starts = len(rule.steps) + sum(state.stood.values())  # counts begin anew at each step and turn of replicas
        former = state.judgement.verdict.numbers if state.judgement is not None else {}
        name = model.name if model.namespace == DEFAULT else f"{model.name} -n {model.namespace}"
        verdict = judge(
            rule.judge,
            totals.stable,
            totals.candidate,
            JudgedStep(state.percent, starts, over, over or settled),
            readings,
            former,
            name,
        )
        return JudgeResult(Judgement(verdict, moment(now)), totals.stable, totals.candidate)

    async def _read(self, model: Model, situation: Situation, state: RolloutState) -> _Totals:
        """Add what came since the last reading to the totals since the percent changed, and return them."""
        key, step = key_of(model.object), (state.candidate, state.started_at, state.step, state.percent)
        totals = self._totals.get(key)
        if totals is None or totals.step != step:
            totals = _Totals(step, state.stable_counts, state.candidate_counts)
        stable, candidate = (_revisions(situation, one) for one in (state.stable, state.candidate))
        watched = self._watched[key] = f"{uid_of(model.object)} {state.started_at}"
        found = await self._observer.read(watched, model.namespace, {*stable, *candidate})
        totals = replace(
            totals,
            stable=totals.stable.then(_together(found, stable)),
            candidate=totals.candidate.then(_together(found, candidate)),
        )
        self._totals[key] = totals
        return totals

    def forget(self, key: Key) -> None:
        """Drop the totals of a rollout that ended, whose Model was deleted, or that `spec.traffic` overrides."""
        self._totals.pop(key, None)
        watched = self._watched.pop(key, None)
        if watched is not None:
            self._observer.forget(watched)


class JudgeConcurrency:
    """Limits the passes that wait for a judgement at the same time.

    Pods and metrics may answer slowly, and the workers of the controller serve all Models. A pass without a place goes
    on unjudged, and judges in a later pass.
    """

    def __init__(self, judge: RolloutJudge, most: int = MOST_AT_ONCE) -> None:
        self._judge = judge
        self._free_places = most

    async def judge(self, model: Model, situation: Situation, now: datetime) -> JudgeResult:
        """Return the judgement of this pass, or `NOT_JUDGED` when none is due or all places are taken."""
        if self._free_places <= 0 and is_judged(model, situation.rollout):
            return NOT_JUDGED
        self._free_places -= 1
        try:
            return await self._judge.judge(model, situation, now)
        finally:
            self._free_places += 1

    def forget(self, key: Key) -> None:
        """Drop the totals of a deleted Model."""
        self._judge.forget(key)


@dataclass(frozen=True, slots=True)
class RolloutProgress:
    """The result of a pass for a Model's versions: the parts of its status from which later passes start.

    `traffic` is `status.traffic`, as last observed at the gateway; `outbox` is `status.outbox`.
    """

    traffic: Sequence[Object]
    rollout: RolloutState | None
    history: tuple[HistoryEntry, ...]
    outbox: list[Object]


def _waits_for_gpus(world: World, rollout: RolloutState | None) -> bool:
    """Return whether replicas of the candidate wait for GPUs that others hold."""
    return rollout is not None and any(
        start_failure_of(one)[0] == WAITING_FOR_GPU for one in world.autoscalers if name_of(one) == rollout.candidate
    )


def advance(model: Model, world: World, plan: Plan, judged: JudgeResult, now: datetime) -> RolloutProgress:
    """Advance the rollout and the history by one pass.

    The plan of this pass followed from the stored state. The new state is written first, and the next pass moves the
    traffic: so a restart between the two repeats nothing and skips nothing.
    """
    situation = plan.situation
    traffic = _observed_traffic(world, model.object.get("status") or {}, situation.versions)
    shares = shares_of(traffic, situation.versions)
    inputs = RolloutInputs(
        shares=shares,
        command=model.command,
        by_hand=is_by_hand(model.spec),
        judgement=judged.judgement,
        stable_counts=judged.stable,
        candidate_counts=judged.candidate,
        reach=plan.capacity.reach,
        standing=plan.capacity.standing,
        waits_for_gpus=_waits_for_gpus(world, situation.rollout),
    )
    rollout = advance_rollout(model.spec.rollout, situation, inputs, situation.rollout, now)
    history = advance_history(
        history_of(model.object),
        situation.versions,
        _settled_shares(shares, rollout),
        _cause(model, situation, rollout),
        timestamp(now),
        coming=rollout.candidate if rollout is not None and rollout.runs else "",
        refused=rollout.candidate if rollout is not None and rollout.phase == "RolledBack" else "",
    )
    return RolloutProgress(traffic, rollout, history, outbox_after(model, rollout, history, now))


def with_valid_times(now: datetime, plan: Plan, found_at: datetime | None, rule: Rollout | None = None) -> Plan:
    """Return the plan with no time of its rollout in the future: a wait from such a time would never end.

    `found_at`: when this process found the rollout running, while it has not written its state since; else None.
    """
    state = plan.situation.rollout
    if state is None:
        return plan
    if found_at is not None:
        judging = (rule or Rollout()).judge.interval
        if state.seen_at and not state.paused_at:  # the end of the step is judged as well
            judging = min(judging, (rule or Rollout()).step_duration)
        state = state.taken_up(found_at, judging + CHANGE_OF_LEADER)
    return replace(plan, situation=replace(plan.situation, rollout=state.not_after(now)))


def seconds_until_pass(model: Model, status: Object, now: datetime) -> float | None:
    """Return the seconds until the rollout in `status` needs a pass without any change; None when it needs none."""
    state = rollout_of({"status": status})
    if state is None:
        return None
    judged = model.spec.rollout is not None and not is_by_hand(model.spec)
    return seconds_to_pass(model.spec.rollout or Rollout(), state, now, judged=judged)


def _observed_traffic(world: World, former: Object, versions: Sequence[Version]) -> list[Object]:
    """Return `status.traffic`: the targets of the Route while it is ready, else what the status had before.

    The largest share is first, since `kubectl get models` shows only one.
    """
    route = world.route
    if route is None or not world.is_ours(route) or not is_true(route, "Ready"):
        return list(former.get("traffic") or ())
    found: dict[tuple[str, str], Object] = {}
    for entry in route["status"].get("traffic") or ():
        key = (entry["revisionName"], entry.get("tag", ""))
        percent = int(entry.get("percent") or 0) + found.get(key, {"percent": 0})["percent"]
        version = version_with(versions, entry["revisionName"])
        parts = {
            "revision": entry["revisionName"],
            "version": version.version if version is not None else "",
            "percent": percent,
            "tag": entry.get("tag", ""),
            "url": entry.get("url", ""),
        }
        found[key] = {name: value for name, value in parts.items() if value != ""}
    kept = [entry for entry in found.values() if entry["percent"] or "tag" in entry]
    return sorted(kept, key=lambda entry: -entry["percent"])


def _settled_shares(shares: Shares, rollout: RolloutState | None) -> Shares:
    """Return the shares for the history, in which a candidate has all traffic only after its last step passed."""
    if rollout is None or not rollout.runs or shares.get(rollout.candidate, 0) < ALL:
        return shares
    return {**shares, rollout.candidate: ALL - 1}


def _cause(model: Model, situation: Situation, rollout: RolloutState | None) -> Cause:
    """Return why the present version has the traffic: the Model's own cause, or the rollback of its rollout."""
    newest = situation.newest
    if rollout is None or rollout.phase != "RolledBack" or newest is None or newest.revision != rollout.candidate:
        return model.cause
    return Cause("rollback", f"{rollout.stable}@{rollout.started_at}")


def _together(found: Mapping[str, Counts], revisions: Iterable[str]) -> Counts:
    return reduce(Counts.merge, (found[one] for one in revisions if one in found), NO_ANSWERS)


def _revisions(situation: Situation, revision: str) -> tuple[str, ...]:
    version = version_with(situation.versions, revision)
    return tuple(version.revisions.values()) if version is not None else (revision,)
