"""Advance the state of a rollout by one pass, from the stored state and what the pass observed. Pure.

    phase         condition                                                becomes
    (none), ended the newest version is not the stable one                 Progressing at 0 %
    any           a version newer than the candidate is complete           a rollout of that version, from 0 %
    running       the spec is that of the stable version again             RolledBack
    Progressing   pause is requested, or the spec sets the traffic         Paused: its time stops
    Paused        neither is true any more                                 Progressing
    running       abort is requested                                       RolledBack
    any           promote is requested, and the candidate is ready         Promoted
    running       `spec.rollout` was removed, the candidate is ready       Promoted
    running       the candidate fails before it has traffic                Failed
    Failed        the candidate becomes ready after all                    Progressing at 0 %; without `spec.rollout`
                                                                           Promoted
    running       the candidate has traffic and is not ready for           RolledBack
                  `MOST_DOWN` seconds after its replicas failed, or its
                  failure is final (its variants loaded different bytes)
    running       the judge's verdict is fail                              RolledBack
    Progressing   at 0 %, the candidate is ready, the digests of both      Progressing at the first step; before one of
                  versions are recorded                                    100 % the stable version is measured
    Progressing   a step is not in force within `progressDeadline`         RolledBack
    Progressing   a step is in force for `stepDuration`, the verdict is    the next step; after the last Promoted
                  pass, or wait and `onInsufficientTraffic` is promote
                  (not while requests to the candidate hang, nor while
                  it is down)
    Progressing   the same, with wait and rollback                         RolledBack
    Progressing   the same, with the verdict hold                          unchanged, with the reason
    otherwise                                                              unchanged

The split follows from the state (`rollout.split`): the state is written first, then the traffic moves, and a step's
time begins when the step was observed at the gateway. So a restart between two writes repeats nothing and skips
nothing. The judge decides during a pause too: a failing version is rolled back. A split in the spec (`traffic`,
`canaryTrafficPercent`) is no verdict on the version: the rollout is paused until the candidate has all the traffic, or
the split is removed from the spec.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from clusters.base.objects import parse_timestamp
from serving.reconciler.rollout import transitions
from serving.reconciler.rollout.history import Shares
from serving.reconciler.rollout.judging.counts import Counts
from serving.reconciler.rollout.judging.verdict import ABOVE, UNANSWERED, Verdict
from serving.reconciler.rollout.schedule import (
    MOST_DOWN,
    seconds_of_baseline,
    seconds_to_settle,
    step_is_over,
    target_of,
)
from serving.reconciler.rollout.split import Situation
from serving.reconciler.rollout.state import NO_ANSWERS, Judgement, Passed, Phase, RolloutState, moment, seconds_between
from serving.reconciler.rollout.versions import Failure, Version, version_with
from serving.types.rollout import ALL, Command, Rollout


@dataclass(frozen=True, slots=True)
class RolloutInputs:
    """Observations of one pass about a rollout, beside the versions.

    `shares` are percents observed at the gateway. `judgement` is the one of this pass, with the requests of both
    versions since the percent changed. `reach` is the percent that the candidate's ready replicas can serve. `standing`
    is the number of replicas that the rollout may count on, by Configuration. `waits_for_gpus`: the candidate cannot
    have all of its replicas, since others hold the GPUs.
    """

    shares: Shares = field(default_factory=dict)
    command: Command | None = None
    by_hand: bool = False
    judgement: Judgement | None = None
    stable_counts: Counts = NO_ANSWERS
    candidate_counts: Counts = NO_ANSWERS
    reach: int = ALL
    standing: Mapping[str, int] = field(default_factory=dict)
    waits_for_gpus: bool = False


@dataclass(frozen=True, slots=True)
class _Pass:
    """The inputs of a stage. `rule` has the defaults when `spec.rollout` was removed (`wanted` is False then)."""

    rule: Rollout
    wanted: bool
    situation: Situation
    inputs: RolloutInputs
    now: datetime

    @property
    def at(self) -> str:
        return moment(self.now)

    def is_requested(self, verb: str, revision: str) -> bool:
        command = self.inputs.command
        return command is not None and command.verb == verb and command.revision == revision


Rule = Callable[[_Pass, RolloutState, Version], RolloutState | None]
"""A rule of the table above: returns the new state, or None when the rule does not apply."""


def advance_rollout(
    rule: Rollout | None, situation: Situation, inputs: RolloutInputs, former: RolloutState | None, now: datetime
) -> RolloutState | None:
    """Return the state of the rollout after a pass; None while there is no version to compare with.

    A repeated pass with the same inputs changes nothing.
    """
    at = _Pass(rule or Rollout(), rule is not None, situation, inputs, now)
    state = _present_rollout(at, former)
    if state is None:
        return None
    left = seconds_to_settle(state, now)
    if left is not None and left <= 0.0:
        state = replace(state, steady=True)
    candidate = version_with(situation.versions, state.candidate)
    if candidate is None:
        return _end(at, state, "RolledBack", f"{state.candidate} no longer exists") if state.runs else state
    if not state.runs or not state.percent or candidate.ready:
        state = replace(state, down_since="")
    elif candidate.failure is not None and not state.down_since:
        state = replace(state, down_since=at.at)
    for stage in RULES:
        changed = stage(at, state, candidate)
        if changed is not None:
            return changed
    return state


def _present_rollout(at: _Pass, former: RolloutState | None) -> RolloutState | None:
    """Return the rollout of this pass: the former one, a new one of the newest version, or none."""
    newest, stable = at.situation.newest, at.situation.stable
    if newest is None or (former is not None and former.candidate in newest):
        return former
    if stable is not None and stable in newest:
        if former is not None and former.runs:
            return _end(at, former, "RolledBack", f"the spec was changed back to that of {stable}")
        return former
    if stable is None or version_with(at.situation.versions, stable) is None:
        return None
    if not newest.complete:
        return former  # a further Revision of the version may still become the one that identifies it
    requested = at.is_requested("promote", newest.revision)
    if (at.wanted or requested) and not at.inputs.by_hand:
        # The former rollout reduced the stable version, which has not recovered yet: its replica count still holds.
        stood = former.stood if former is not None and (former.runs or not former.steady) else {}
        return _begin(at, newest.revision, stable, stood)
    if former is not None and former.runs:
        return _end(at, former, "RolledBack", f"superseded by {newest.revision}")
    return former


def _begin(at: _Pass, candidate: str, stable: str, stood: Mapping[str, int]) -> RolloutState:
    reasons, stood = (start_reason(candidate, stable),), transitions.grown(stood, at.inputs.standing)
    return RolloutState("Progressing", candidate, stable, at.at, at.at, reasons=reasons, stood=stood)


def start_reason(candidate: str, stable: str) -> str:
    """Return the reason of a rollout that begins."""
    return f"rolling out {candidate} to replace {stable}"


def _end(at: _Pass, state: RolloutState, phase: Phase, *reasons: str) -> RolloutState:
    """Return the ended rollout. It keeps step, counts and the last judgement as evidence.

    A stable version that gets its traffic back has to settle (`steady` is False).
    """
    percent = ALL if phase == "Promoted" else 0
    steady = phase == "Promoted" or not state.percent
    ended = replace(state, phase=phase, percent=percent, ended_at=at.at, paused_at="", down_since="")
    return replace(ended, steady=steady, reasons=reasons)


def _aborted(at: _Pass, state: RolloutState, candidate: Version) -> RolloutState | None:
    if state.runs and at.is_requested("abort", candidate.revision):
        return _end(at, state, "RolledBack", f"aborted manually at {state.percent} %")
    return None


def _promoted(at: _Pass, state: RolloutState, candidate: Version) -> RolloutState | None:
    if state.phase == "Promoted" or not at.is_requested("promote", candidate.revision):
        return None
    if not at.situation.is_usable(candidate) or not (state.runs or candidate is at.situation.newest):
        return None
    return _end(at, state, "Promoted", f"promoted manually at {state.percent} %")


def _promoted_without_rollout(at: _Pass, state: RolloutState, candidate: Version) -> RolloutState | None:
    """Promote the latest ready version when `spec.rollout` was removed, and neither spec nor command decides."""
    if at.wanted or not (state.runs or state.phase == "Failed") or at.is_requested("promote", candidate.revision):
        return None
    elsewhere = at.inputs.by_hand and at.inputs.shares.get(state.candidate, 0) < ALL
    if elsewhere or candidate.failure is not None or candidate is not at.situation.newest:
        return None
    if not at.situation.is_usable(candidate):
        return None
    return _end(at, state, "Promoted", "spec.rollout was removed: the latest ready version gets all traffic")


def _failed(at: _Pass, state: RolloutState, candidate: Version) -> RolloutState | None:
    """End a rollout whose candidate never became ready, or stays down.

    One crash of a version with traffic does not end a rollout: any caller of its tag may have caused the crash.
    """
    failure = candidate.failure
    if not state.runs:
        return None
    if failure is not None and not state.percent:
        return _end(at, state, "Failed", _words_of(failure))
    if failure is not None and failure.final:
        return _end(at, state, "RolledBack", _words_of(failure))
    if state.down_since and seconds_between(state.down_since, at.now) >= MOST_DOWN:
        why = f"{candidate.revision} has {state.percent} % of the traffic and has not been ready for {MOST_DOWN:g} s"
        return _end(at, state, "RolledBack", why, *([_words_of(failure)] if failure is not None else ()))
    return None


def _words_of(failure: Failure) -> str:
    return f"{failure.revision}: {failure.reason}: {failure.message}".rstrip(": \n")


def _recovered(at: _Pass, state: RolloutState, candidate: Version) -> RolloutState | None:
    if state.phase == "Failed" and candidate.ready and at.wanted and not at.inputs.by_hand:
        return _begin(at, state.candidate, state.stable, state.stood)
    return None


def _rejected(at: _Pass, state: RolloutState, _: Version) -> RolloutState | None:
    judgement = at.inputs.judgement
    if not state.runs or judgement is None or judgement.verdict.decision != "fail":
        return None
    return _end(at, _with_judgement(at, state), "RolledBack", *judgement.verdict.reasons)


def _paused(at: _Pass, state: RolloutState, candidate: Version) -> RolloutState | None:
    """Begin, continue or end a pause."""
    if not state.runs:
        return None
    state = _with_judgement(at, state)
    requested = at.is_requested("pause", candidate.revision)
    if requested or at.inputs.by_hand:
        why = "paused manually" if requested else "paused: spec.traffic or spec.canaryTrafficPercent sets the traffic"
        return replace(state, phase="Paused", paused_at=state.paused_at or at.at, reasons=(why,))
    return transitions.resumed(state, at.now) if state.phase == "Paused" else None


def _started(at: _Pass, state: RolloutState, candidate: Version) -> RolloutState | None:
    if state.phase != "Progressing" or state.percent:
        return None
    state = _with_judgement(at, state)
    if not at.situation.is_usable(candidate):
        return state
    ready = f"{candidate.revision} is ready"
    for version in (candidate, version_with(at.situation.versions, state.stable)):
        if version is not None and not version.held:
            unknown = f"the digest of the files of {version.revision} is not recorded yet"
            return replace(state, reasons=(ready, f"{unknown}: a later replica could load different bytes"))
    if seconds_of_baseline(at.rule, state, at.now) > 0.0:
        return replace(state, reasons=(f"{ready}; measuring {state.stable} first: the step leaves it no traffic",))
    begun = replace(state, since=at.at, stood=transitions.grown(state.stood, at.inputs.standing))
    return transitions.moved(begun, min(target_of(at.rule, state), at.inputs.reach), ready)


def _shifted(at: _Pass, state: RolloutState, _: Version) -> RolloutState | None:
    """Increase the candidate's share as far as its ready replicas permit, each part observed before the next."""
    if state.phase != "Progressing":
        return None
    target, state = target_of(at.rule, state), _with_judgement(at, state)
    if state.percent == target and state.seen_at:
        return None
    if state.follows_load:
        state = replace(state, stood=transitions.grown(state.stood, at.inputs.standing))
    if state.seen_at:  # the spec's steps were changed
        reasons = (f"step {state.step + 1} was changed to {target} %",)
        state = replace(state, since=at.at, seen_at="", steady=False, reasons=reasons)
    shares = at.inputs.shares
    if shares.get(state.candidate, 0) == state.percent and shares.get(state.stable, 0) == ALL - state.percent:
        if state.percent == target:
            return replace(state, seen_at=at.at, reasons=(f"{target} % in force",))
        reach = min(target, at.inputs.reach)
        if reach > state.percent or target < state.percent:
            return transitions.moved(replace(state, since=at.at), reach, f"ready replicas can serve {reach} %")
    waited = seconds_between(state.since, at.now)
    if at.inputs.waits_for_gpus and waited >= at.rule.progress_deadline / 2:
        reasons = (f"{state.candidate} waits for GPUs, so the deadline of step {state.step + 1} begins again",)
        return replace(state, since=at.at, reasons=reasons)
    if waited >= at.rule.progress_deadline:
        why = f"step {state.step + 1} ({target} %) was not in force within {at.rule.progress_deadline:g} s"
        return _end(at, state, "RolledBack", f"{why}: only {state.percent} % was")
    return state


def _stepped(at: _Pass, state: RolloutState, _: Version) -> RolloutState | None:
    """Decide on a step whose time is over, by a judgement that was made after that."""
    judgement = at.inputs.judgement
    if (
        state.phase != "Progressing"
        or judgement is None
        or not step_is_over(at.rule, state, parse_timestamp(judgement.at))
    ):
        return None
    state, verdict = _with_judgement(at, state), judgement.verdict
    step = f"step {state.step + 1} ({state.percent} %)"
    if state.down_since:
        return replace(state, reasons=(f"{step} is held: {state.candidate} is down",))
    if verdict.decision == "pass":
        return _next(at, state, verdict, "passed")
    if any(name.startswith(ABOVE) for name in verdict.numbers):
        return replace(state, reasons=verdict.reasons)  # a metric is above its bound for the first time
    if verdict.decision == "hold":
        return replace(state, reasons=(f"{step} is held", *verdict.reasons))
    little = f"{step} is over, with too little traffic for a verdict"
    match at.rule.on_insufficient_traffic:
        case "promote" if UNANSWERED not in verdict.numbers:
            return _next(at, state, verdict, "passed with too little traffic for a verdict")
        case "rollback":
            return _end(at, state, "RolledBack", little, *verdict.reasons)
    return replace(state, reasons=(f"{little}: it is held", *verdict.reasons))


def _judged(at: _Pass, state: RolloutState, _: Version) -> RolloutState | None:
    return _with_judgement(at, state) if state.runs else None


RULES: tuple[Rule, ...] = (
    _aborted,  # commands of users come first
    _promoted,
    _promoted_without_rollout,
    _recovered,
    _failed,  # then certain failures, also during a pause
    _rejected,
    _paused,
    _started,  # then progress
    _shifted,
    _stepped,
    _judged,
)
"""The rules in the order in which they apply: the first that returns a state decides."""


def _next(at: _Pass, state: RolloutState, verdict: Verdict, how: str) -> RolloutState:
    passed = (*state.passed, Passed(state.percent, state.since, at.at, state.judgement))
    state = replace(state, passed=passed)
    done = f"step {state.step + 1} ({state.percent} %) {how}"
    if state.step + 1 >= len(at.rule.steps):
        return _end(at, state, "Promoted", done, *verdict.reasons)
    stood = transitions.grown(state.stood, at.inputs.standing)
    begun = replace(state, step=state.step + 1, since=at.at, stood=stood, baseline=NO_ANSWERS)
    reach = max(state.percent, min(target_of(at.rule, begun), at.inputs.reach))
    return transitions.moved(begun, reach, done, *verdict.reasons)


def _with_judgement(at: _Pass, state: RolloutState) -> RolloutState:
    """Return the state with the judgement of this pass and its counts, if there was one."""
    inputs = at.inputs
    if inputs.judgement is None:
        return state
    return replace(
        state,
        judgement=inputs.judgement,
        stable_counts=inputs.stable_counts,
        candidate_counts=inputs.candidate_counts,
    )
