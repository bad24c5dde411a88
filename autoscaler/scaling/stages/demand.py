"""Stages that follow the measured work: on average, and in a burst."""

from __future__ import annotations

import numpy as np

from autoscaler.scaling.stages.queue import wanted_for_crowd, wanted_for_queue
from autoscaler.scaling.stages.stage import StageInputs, StageResult, where
from autoscaler.scaling.table import NEVER, IntArray


def stable(inputs: StageInputs, desired: IntArray) -> StageResult:
    """Set the replicas to the demand of the stable window; without data, leave the count.

    Replicas that did not answer count as idle if that would add replicas, and as full if it would remove some (the rule
    of Kubernetes' HorizontalPodAutoscaler for missing metrics).
    """
    seen = inputs.seen
    least = inputs.replicas_for(seen.stable)
    most = least
    if seen.unknown.any():
        most = np.maximum(least, np.minimum(inputs.replicas_for(seen.stable + seen.unknown), desired))
    return StageResult(
        where(~np.isnan(seen.stable), most, desired),
        lambda: {"work": seen.stable, "window": inputs.specs.stable_window, "per_replica": inputs.per_replica},
    )


def panic(inputs: StageInputs, desired: IntArray) -> StageResult:
    """Meet a demand of `panic_threshold` times the ready replicas at once, and hold it for a stable window.

    This is Knative's panic mode with one exception: a process that has just started and found replicas does not panic
    because of windows that cover only seconds. Queued requests always count.
    """
    specs, seen, state, now = inputs.specs, inputs.seen, inputs.state, inputs.now
    wants = np.maximum(inputs.replicas_for(seen.panic), np.maximum(wanted_for_queue(inputs), wanted_for_crowd(inputs)))
    wants = np.minimum(wants, specs.max)
    wants *= inputs.is_trusted | inputs.is_waited_for | (seen.crowd > 0.0)
    over = wants >= inputs.settings.panic_threshold * np.maximum(seen.ready, 1)
    before = now < state.panic_until
    peak, until = np.zeros_like(wants), np.full(inputs.rows, NEVER)
    rows = np.flatnonzero(over | before)
    peak[rows] = np.maximum(state.panic_peak[rows] * before[rows], wants[rows])
    until[rows] = np.where(over[rows], now + specs.stable_window[rows], state.panic_until[rows])
    return StageResult(
        np.maximum(desired, peak),
        lambda: {"threshold": inputs.settings.panic_threshold, "ready": seen.ready, "remaining": until - now},
        {"panic_until": until, "panic_peak": peak},
    )
