"""Transitions of a rollout's state: a change of the candidate's share, and the end of a pause. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from clusters.base.objects import parse_timestamp
from serving.reconciler.rollout.state import NO_ANSWERS, RolloutState, moment
from serving.types.rollout import ALL


def moved(state: RolloutState, percent: int, *reasons: str) -> RolloutState:
    """Return the state in which the candidate is to get `percent`, not yet observed at the gateway.

    Counts start again. The stable version's former counts join its baseline. When it gets no more traffic, the baseline
    becomes its counts: there is nothing else to compare with.
    """
    stable, baseline = NO_ANSWERS, state.baseline.merge(state.stable_counts)
    if percent >= ALL:
        stable, baseline = baseline, stable
    return replace(
        state, percent=percent, seen_at="", steady=False, reasons=reasons,
        stable_counts=stable, candidate_counts=NO_ANSWERS, baseline=baseline, judgement=None,
    )  # fmt: skip


def grown(stood: Mapping[str, int], standing: Mapping[str, int]) -> dict[str, int]:
    """Return the larger number of replicas for each Configuration: the number grows when load required more."""
    return {name: max(stood.get(name, 0), standing.get(name, 0)) for name in {*stood, *standing}}


def resumed(state: RolloutState, now: datetime) -> RolloutState:
    """Return the state after a pause: the remaining time of the step and of its deadline is as before the pause.

    On the way to a step, replicas are requested again.
    """
    since, seen = (_later(text, state.paused_at, now) for text in (state.since, state.seen_at))
    steady = state.steady and bool(seen)
    return replace(
        state, phase="Progressing", paused_at="", since=since, seen_at=seen, steady=steady, reasons=("resumed",)
    )


def _later(moment_text: str, paused_at: str, now: datetime) -> str:
    """Return a time before the pause, moved by the length of the pause; a time within the pause becomes `now`."""
    if not moment_text:
        return ""
    before = min(parse_timestamp(moment_text), parse_timestamp(paused_at))
    return moment(before + (now - parse_timestamp(paused_at)))
