"""From where a rollout stands to where it goes: one pass after the other, each from what the status says. Pure.

    phase         in this situation                                        becomes
    (none), ended another version than the stable one is newest            Progressing at 0 %
    any           a version newer than the candidate is made, all of it    a rollout of that one, from 0 %
    running       the spec asks for the stable version again               RolledBack
    Progressing   pause is asked for, or traffic is given by hand          Paused: its time stands still
    Paused        neither any more                                         Progressing
    running       abort is asked for                                       RolledBack
    any           promote is asked for, and the candidate is ready         Promoted
    running       `spec.rollout` is taken away, the candidate is ready     Promoted
    running       the candidate fails before it has traffic                Failed
    Failed        it becomes ready after all                               Progressing at 0 %; without `spec.rollout`
                                                                           Promoted
    running       the candidate has traffic and is not ready for           RolledBack
                  `MOST_DOWN` seconds after its replicas failed, or its
                  failure is final (its variants loaded different bytes)
    running       the judge's verdict is fail                              RolledBack
    Progressing   at 0 %, the candidate is ready, the digests of both      Progressing at the first step; one of 100 %
                  versions are recorded                                    once the stable version is counted
    Progressing   a step is not in force within `progressDeadline`         RolledBack
    Progressing   a step is in force for `stepDuration`, the verdict is    the next step; after the last Promoted
                  pass, or wait and `onInsufficientTraffic` is promote
                  (but not while requests to the candidate hang, nor
                  while it is down)
    Progressing   likewise, wait, and it is rollback                       RolledBack
    Progressing   likewise, and the verdict is hold                        as it was, with the reason
    else                                                                   as it was

The split follows from the state (`rollout.split`): the state is written first, the traffic moves after it, and a step's
time begins once a probe has seen it at the gateway. So a restart between any two writes repeats nothing and skips
nothing. A paused rollout is judged as well: a bad version leaves, whoever sleeps. Who puts a split by hand in place of
`spec.rollout` says nothing of the version: it is paused until it has all the traffic, or the split is taken away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from clusters.base.objects import parse_timestamp
from serving.reconciler.rollout.inputs import Sight
from serving.reconciler.rollout.judging.verdict import ABOVE, UNANSWERED, Verdict
from serving.reconciler.rollout.schedule import (
    MOST_DOWN,
    seconds_of_baseline,
    seconds_to_settle,
    step_is_over,
    target_of,
)
from serving.reconciler.rollout.split import Situation
from serving.reconciler.rollout.state import NO_ANSWERS, Passed, Phase, RolloutState, moment, seconds_between
from serving.reconciler.rollout.transitions import grown, moved, resumed
from serving.reconciler.rollout.versions import Failure, Version, version_with
from serving.types.rollout import ALL, Rollout


@dataclass(frozen=True, slots=True)
class _Pass:
    """All that a stage looks at; `rule` has the defaults while the spec has no rollout any more (`wanted` False)."""

    rule: Rollout
    wanted: bool
    situation: Situation
    sight: Sight
    now: datetime

    @property
    def at(self) -> str:
        return moment(self.now)

    def asks(self, verb: str, revision: str) -> bool:
        command = self.sight.command
        return command is not None and command.verb == verb and command.revision == revision


Stage = Callable[[_Pass, RolloutState, Version], RolloutState | None]
"""What a rollout becomes by one rule; None where the rule says nothing."""


def advance_rollout(
    rule: Rollout | None, situation: Situation, sight: Sight, former: RolloutState | None, now: datetime
) -> RolloutState | None:
    """The rollout after a pass; None while there is nothing to compare a version with. The same pass twice is one."""
    at = _Pass(rule or Rollout(), rule is not None, situation, sight, now)
    state = _concerned(at, former)
    if state is None:
        return None
    state = _settled(at, state)
    candidate = version_with(situation.versions, state.candidate)
    if candidate is None:
        return _end(at, state, "RolledBack", f"{state.candidate} is gone") if state.runs else state
    state = _with_downtime(at, state, candidate)
    for stage in STAGES:
        changed = stage(at, state, candidate)
        if changed is not None:
            return changed
    return state


def _concerned(at: _Pass, former: RolloutState | None) -> RolloutState | None:
    """The rollout that this pass is about: the former one, a new one of the newest version, or none."""
    newest, stable = at.situation.newest, at.situation.stable
    if newest is None or (former is not None and former.candidate in newest):
        return former
    if stable is not None and stable in newest:
        if former is not None and former.runs:
            return _end(at, former, "RolledBack", f"the spec asks for {stable} again")
        return former
    if stable is None or version_with(at.situation.versions, stable) is None:
        return None
    if not newest.complete:
        return former  # until then another of its Revisions may come to stand for it
    asked = at.asks("promote", newest.revision)
    if (at.wanted or asked) and not at.sight.by_hand:
        return _begun(at, newest.revision, stable, _counted_from(former))
    if former is not None and former.runs:
        return _end(at, former, "RolledBack", f"superseded by {newest.revision}")
    return former


def _counted_from(former: RolloutState | None) -> Mapping[str, int]:
    """What the rollout before counted from, where that has shrunk the stable version and it has not settled since."""
    return former.stood if former is not None and (former.runs or not former.steady) else {}


def _begun(at: _Pass, candidate: str, stable: str, stood: Mapping[str, int]) -> RolloutState:
    reasons, stood = (f"{candidate} is to follow {stable}",), grown(stood, at.sight.standing)
    return RolloutState("Progressing", candidate, stable, at.at, at.at, reasons=reasons, stood=stood)


def _end(at: _Pass, state: RolloutState, phase: Phase, *reasons: str) -> RolloutState:
    """Terminal phases keep step, counts and the last look, as evidence. What gets its traffic back has to settle."""
    percent = ALL if phase == "Promoted" else 0
    steady = phase == "Promoted" or not state.percent
    ended = replace(state, phase=phase, percent=percent, ended_at=at.at, paused_at="", down_since="")
    return replace(ended, steady=steady, reasons=reasons)


def _aborted(at: _Pass, state: RolloutState, candidate: Version) -> RolloutState | None:
    if state.runs and at.asks("abort", candidate.revision):
        return _end(at, state, "RolledBack", f"aborted at {state.percent} % by hand")
    return None


def _promoted(at: _Pass, state: RolloutState, candidate: Version) -> RolloutState | None:
    if state.phase == "Promoted" or not at.asks("promote", candidate.revision):
        return None
    if not at.situation.is_usable(candidate) or not (state.runs or candidate is at.situation.newest):
        return None
    return _end(at, state, "Promoted", f"promoted at {state.percent} % by hand")


def _unasked(at: _Pass, state: RolloutState, candidate: Version) -> RolloutState | None:
    """Without `spec.rollout`, a split by hand, and a command for this one, the latest ready version gets all."""
    if at.wanted or not (state.runs or state.phase == "Failed") or at.asks("promote", candidate.revision):
        return None
    elsewhere = at.sight.by_hand and at.sight.shares.get(state.candidate, 0) < ALL
    if elsewhere or candidate.failure is not None or candidate is not at.situation.newest:
        return None
    if not at.situation.is_usable(candidate):
        return None
    return _end(at, state, "Promoted", "spec.rollout was taken away: the latest ready version has it all")


def _failed(at: _Pass, state: RolloutState, candidate: Version) -> RolloutState | None:
    """End a rollout whose candidate never became ready, or stays down.

    One crash of a version that has traffic ends nothing: any caller of a tag may have caused it.
    """
    failure = candidate.failure
    if not state.runs:
        return None
    if failure is not None and not state.percent:
        return _end(at, state, "Failed", _words_of(failure))
    if failure is not None and failure.final:
        return _end(at, state, "RolledBack", _words_of(failure))
    if state.down_since and seconds_between(state.down_since, at.now) >= MOST_DOWN:
        why = f"{candidate.revision} is not ready for {MOST_DOWN:g} s, with {state.percent} % of the traffic"
        return _end(at, state, "RolledBack", why, *([_words_of(failure)] if failure is not None else ()))
    return None


def _words_of(failure: Failure) -> str:
    return f"{failure.revision}: {failure.reason}: {failure.message}".rstrip(": \n")


def _recovered(at: _Pass, state: RolloutState, candidate: Version) -> RolloutState | None:
    if state.phase == "Failed" and candidate.ready and at.wanted and not at.sight.by_hand:
        return _begun(at, state.candidate, state.stable, state.stood)
    return None


def _condemned(at: _Pass, state: RolloutState, _: Version) -> RolloutState | None:
    look = at.sight.look
    if not state.runs or look is None or look.verdict.decision != "fail":
        return None
    return _end(at, _judged(at, state), "RolledBack", *look.verdict.reasons)


def _paused(at: _Pass, state: RolloutState, candidate: Version) -> RolloutState | None:
    """Into the pause, through it, and out of it."""
    if not state.runs:
        return None
    state = _judged(at, state)
    asked = at.asks("pause", candidate.revision)
    if asked or at.sight.by_hand:
        why = "paused by hand" if asked else "paused: spec.traffic or spec.canaryTrafficPercent decides"
        return replace(state, phase="Paused", paused_at=state.paused_at or at.at, reasons=(why,))
    return resumed(state, at.now) if state.phase == "Paused" else None


def _started(at: _Pass, state: RolloutState, candidate: Version) -> RolloutState | None:
    if state.phase != "Progressing" or state.percent:
        return None
    state = _judged(at, state)
    if not at.situation.is_usable(candidate):
        return state
    ready = f"{candidate.revision} is ready"
    for version in (candidate, version_with(at.situation.versions, state.stable)):
        if version is not None and not version.held:
            unknown = f"the digest of the files of {version.revision} is not recorded yet"
            return replace(state, reasons=(ready, f"{unknown}: a later replica could load other bytes"))
    if seconds_of_baseline(at.rule, state, at.now) > 0.0:
        return replace(state, reasons=(f"{ready}, {state.stable} is counted first: the step leaves it nothing",))
    begun = replace(state, since=at.at, stood=grown(state.stood, at.sight.standing))
    return moved(begun, min(target_of(at.rule, state), at.sight.reach), ready)


def _shifted(at: _Pass, state: RolloutState, _: Version) -> RolloutState | None:
    """On the way to the step's percent: as far as the candidate's replicas reach, each part seen before the next."""
    if state.phase != "Progressing":
        return None
    target, state = target_of(at.rule, state), _judged(at, state)
    if state.percent == target and state.seen_at:
        return None
    if state.follows_load:
        state = replace(state, stood=grown(state.stood, at.sight.standing))
    if state.seen_at:  # the steps were edited
        reasons = (f"step {state.step + 1} is {target} % now",)
        state = replace(state, since=at.at, seen_at="", steady=False, reasons=reasons)
    if _is_seen(at, state):
        if state.percent == target:
            return replace(state, seen_at=at.at, reasons=(f"{target} % in force",))
        reach = min(target, at.sight.reach)
        if reach > state.percent or target < state.percent:
            return moved(replace(state, since=at.at), reach, f"replicas are there for {reach} %")
    waited = seconds_between(state.since, at.now)
    if waited >= at.rule.progress_deadline:
        why = f"step {state.step + 1} ({target} %) was not in force within {at.rule.progress_deadline:g} s"
        return _end(at, state, "RolledBack", f"{why}: {state.percent} % were")
    return state


def _stepped(at: _Pass, state: RolloutState, _: Version) -> RolloutState | None:
    """A step whose time is over, by the verdict of a look that knew so."""
    look = at.sight.look
    if state.phase != "Progressing" or look is None or not step_is_over(at.rule, state, parse_timestamp(look.at)):
        return None
    state = _judged(at, state)
    if state.down_since:
        held = f"step {state.step + 1} ({state.percent} %) is held: {state.candidate} is down"
        return replace(state, reasons=(held,))
    if look.verdict.decision == "pass":
        return _next(at, state, look.verdict, "passed")
    if any(name.startswith(ABOVE) for name in look.verdict.numbers):
        return replace(state, reasons=look.verdict.reasons)  # a metric is above its bound once: the next look decides
    if look.verdict.decision == "hold":
        return replace(state, reasons=(f"step {state.step + 1} ({state.percent} %) is held", *look.verdict.reasons))
    little = f"step {state.step + 1} ({state.percent} %) is over, and its requests do not tell enough"
    match at.rule.on_insufficient_traffic:
        case "promote" if UNANSWERED not in look.verdict.numbers:
            return _next(at, state, look.verdict, "passed for want of traffic")
        case "rollback":
            return _end(at, state, "RolledBack", little, *look.verdict.reasons)
    return replace(state, reasons=(f"{little}: it is held", *look.verdict.reasons))


def _seen(at: _Pass, state: RolloutState, _: Version) -> RolloutState | None:
    return _judged(at, state) if state.runs else None


STAGES: tuple[Stage, ...] = (
    _aborted,  # a person's word comes first
    _promoted,
    _unasked,
    _recovered,
    _failed,  # then what is surely bad, also in a pause
    _condemned,
    _paused,
    _started,  # then the way forward
    _shifted,
    _stepped,
    _seen,
)


def _next(at: _Pass, state: RolloutState, verdict: Verdict, how: str) -> RolloutState:
    passed = (*state.passed, Passed(state.percent, state.since, at.at, state.look))
    state = replace(state, passed=passed)
    done = f"step {state.step + 1} ({state.percent} %) {how}"
    if state.step + 1 >= len(at.rule.steps):
        return _end(at, state, "Promoted", done, *verdict.reasons)
    stood = grown(state.stood, at.sight.standing)
    begun = replace(state, step=state.step + 1, since=at.at, stood=stood, baseline=NO_ANSWERS)
    reach = max(state.percent, min(target_of(at.rule, begun), at.sight.reach))
    return moved(begun, reach, done, *verdict.reasons)


def _settled(at: _Pass, state: RolloutState) -> RolloutState:
    left = seconds_to_settle(state, at.now)
    return replace(state, steady=True) if left is not None and left <= 0.0 else state


def _with_downtime(at: _Pass, state: RolloutState, candidate: Version) -> RolloutState:
    """Return the state with the moment since when a candidate that has traffic is down."""
    if not state.runs or not state.percent or candidate.ready:
        return replace(state, down_since="")
    return replace(state, down_since=at.at) if candidate.failure is not None and not state.down_since else state


def _judged(at: _Pass, state: RolloutState) -> RolloutState:
    """The state with what the pass's look found."""
    sight = at.sight
    if sight.look is None:
        return state
    return replace(
        state, look=sight.look, stable_counts=sight.stable_counts, candidate_counts=sight.candidate_counts
    )  # fmt: skip


def _is_seen(at: _Pass, state: RolloutState) -> bool:
    shares = at.sight.shares
    return shares.get(state.candidate, 0) == state.percent and shares.get(state.stable, 0) == ALL - state.percent
