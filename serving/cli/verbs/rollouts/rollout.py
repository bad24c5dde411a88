"""What the verbs share that act on a rollout or tell of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clusters.base.objects import Object, generation_of
from serving.cli.base.errors import CommandError
from serving.cli.change import change_model
from serving.cli.client.wait import change_stored, is_routed, parse_timeout, wait_until
from serving.cli.context import Session
from serving.cli.verbs.rollouts.shares import show_split
from serving.reconciler.rollout.judging.verdict import Verdict
from serving.reconciler.rollout.state import Phase, RolloutState, join_reasons, rollout_of
from serving.types.rollout import ALL

PROMOTED: Phase = "Promoted"
"""What a rollout that has ended otherwise can still become."""


def change_rollout(
    session: Session, name: str, timeout: str, patch_of: Callable[[Object], dict[str, Any]], phase: Phase
) -> None:
    """Send the patch, wait until the rollout is in the phase and the traffic follows, show both.

    Raises CommandError when it ends otherwise meanwhile, and as `change_model` and `wait_until`.
    """
    seconds = parse_timeout(timeout)
    client = session.client(seconds)
    generation = generation_of(change_model(client, name, session.namespace, patch_of))

    def done(model: Object) -> bool:
        state = rollout_of(model)
        if state is None:
            return is_routed(model, generation)  # there was nothing to roll out
        if state.phase != phase and not state.runs and phase != PROMOTED:
            reasons = join_reasons(state.reasons)
            raise CommandError(f"the rollout of {state.candidate} has ended: {state.phase}: {reasons}")
        return state.phase == phase and _follows(model, state)

    with change_stored(name):
        model = wait_until(client, name, session.namespace, seconds, done)
    show_split(session, model)
    if not session.output.structured:
        for line in rollout_lines(model):
            session.output.text(line)


def rollout_lines(model: Object) -> list[str]:
    """The rollout of a Model for people; nothing when there was none."""
    state = rollout_of(model)
    if state is None:
        return []
    lines = [f"Rollout: {state.phase}, {state.candidate} after {state.stable}, {_where(model, state)}"]
    lines += [f"  {join_reasons(state.reasons)}"] if state.reasons else []
    for passed in state.passed:
        said = f": {join_reasons(passed.judgement.verdict.reasons)}" if passed.judgement is not None else ""
        lines.append(f"  {passed.until}  {passed.percent:>3} %  over{said}")
    if state.judgement is not None:
        verdict = state.judgement.verdict
        if _is_without_requests(verdict):
            return [*lines, f"  {state.judgement.at}  judge: {verdict.decision}: no requests yet: nothing to compare"]
        lines.append(f"  {state.judgement.at}  judge: {verdict.decision}: {join_reasons(verdict.reasons)}")
        lines.append("  " + ", ".join(f"{name} {value:g}" for name, value in verdict.numbers.items()))
    return lines


def _is_without_requests(verdict: Verdict) -> bool:
    """Return whether the judge had nothing to look at: neither an answer of the candidate, nor hanging requests."""
    others = any(name.startswith("metric.") or name.endswith(".inFlight") for name in verdict.numbers)
    return verdict.decision == "wait" and verdict.numbers.get("candidate.requests") == 0 and not others


def rollout_summary(model: Object) -> str:
    """The rollout in a few words, when it runs; else nothing."""
    state = rollout_of(model)
    return f"rollout {state.phase.lower()}, {_where(model, state)}" if state is not None and state.runs else ""


def _where(model: Object, state: RolloutState) -> str:
    steps = len((model["spec"].get("rollout") or {}).get("steps") or ())
    of = f" of {steps}" if steps else ""
    if not state.runs:
        return f"ended at {state.ended_at} in step {state.step + 1}{of}"
    since = f"in force since {state.seen_at}" if state.seen_at else f"asked for at {state.since}"
    return f"step {state.step + 1}{of}: {state.percent} %, {since}"


def _follows(model: Object, state: RolloutState) -> bool:
    """Whether an ended rollout's traffic was seen where it belongs."""
    wanted = {"Promoted": ALL, "RolledBack": 0}.get(state.phase)
    traffic = (model.get("status") or {}).get("traffic") or ()
    loser = state.stable if wanted == ALL else state.candidate
    return wanted is None or not any(one.get("revision") == loser and one.get("percent") for one in traffic)
