"""What a move of the traffic does to the state of a rollout. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from clusters.base.objects import parse_timestamp
from serving.reconciler.rollout.state import NO_ANSWERS, RolloutState, moment
from serving.types.rollout import ALL


def moved(state: RolloutState, percent: int, *reasons: str) -> RolloutState:
    """The candidate is to get `percent`: it is judged by what comes from now on, which the gateway has still to show.

    What the stable version answered so far joins its baseline, and that its counts when it gets nothing more: there is
    nothing else to compare with.
    """
    stable, baseline = NO_ANSWERS, state.baseline.merge(state.stable_counts)
    if percent >= ALL:
        stable, baseline = baseline, stable
    return replace(
        state, percent=percent, seen_at="", steady=False, reasons=reasons,
        stable_counts=stable, candidate_counts=NO_ANSWERS, baseline=baseline, look=None,
    )  # fmt: skip


def grown(stood: Mapping[str, int], standing: Mapping[str, int]) -> dict[str, int]:
    """Replicas to count from at the next step: more, when requests called for more meanwhile."""
    return {name: max(stood.get(name, 0), standing.get(name, 0)) for name in {*stood, *standing}}


def resumed(state: RolloutState, now: datetime) -> RolloutState:
    """Out of a pause: what was left of a step and its deadline is left now. On the way it asks for replicas again."""
    since, seen = (_later(text, state.paused_at, now) for text in (state.since, state.seen_at))
    steady = state.steady and bool(seen)
    return replace(
        state, phase="Progressing", paused_at="", since=since, seen_at=seen, steady=steady, reasons=("resumed by hand",)
    )


def _later(moment_text: str, paused_at: str, now: datetime) -> str:
    """A moment before the pause, moved by as long as the pause took; one within it begins anew."""
    if not moment_text:
        return ""
    before = min(parse_timestamp(moment_text), parse_timestamp(paused_at))
    return moment(before + (now - parse_timestamp(paused_at)))
