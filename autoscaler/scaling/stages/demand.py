"""What the work in hand calls for: on average, and in a burst."""

from __future__ import annotations

import numpy as np

from autoscaler.scaling.stages.queue import crowd_wants, queue_wants
from autoscaler.scaling.stages.situation import Outcome, Situation, where
from autoscaler.scaling.table import NEVER, IntArray


def stable(at: Situation, desired: IntArray) -> Outcome:
    """What the stable window calls for; without data the count stays.

    Replicas that did not answer count as idle when that would add replicas, and as full when it would remove some
    (the rule of Kubernetes' HorizontalPodAutoscaler for missing metrics).
    """
    seen = at.seen
    least = at.replicas_for(seen.stable)
    most = least
    if seen.unknown.any():
        most = np.maximum(least, np.minimum(at.replicas_for(seen.stable + seen.unknown), desired))
    return Outcome(
        where(~np.isnan(seen.stable), most, desired),
        lambda: {"work": seen.stable, "window": at.specs.stable_window, "per_replica": at.per_replica},
    )


def panic(at: Situation, desired: IntArray) -> Outcome:
    """A need of `panic_threshold` times the ready replicas is met at once and held for a stable window.

    Knative's panic mode, except that a process that has just started and found replicas does not panic by windows that
    hold but seconds; requests that wait are a fact all the same.
    """
    specs, seen, state, now = at.specs, at.seen, at.state, at.now
    wants = np.maximum(at.replicas_for(seen.panic), np.maximum(queue_wants(at), crowd_wants(at)))
    wants = np.minimum(wants, specs.max)
    wants *= at.is_trusted | at.is_waited_for | (seen.crowd > 0.0)
    over = wants >= at.settings.panic_threshold * np.maximum(seen.ready, 1)
    before = now < state.panic_until
    peak, until = np.zeros_like(wants), np.full(at.rows, NEVER)
    rows = np.flatnonzero(over | before)
    peak[rows] = np.maximum(state.panic_peak[rows] * before[rows], wants[rows])
    until[rows] = np.where(over[rows], now + specs.stable_window[rows], state.panic_until[rows])
    return Outcome(
        np.maximum(desired, peak),
        lambda: {"threshold": at.settings.panic_threshold, "ready": seen.ready, "remaining": until - now},
        {"panic_until": until, "panic_peak": peak},
    )
