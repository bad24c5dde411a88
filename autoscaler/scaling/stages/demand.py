"""What the work in hand calls for: on average, and in a burst."""

from __future__ import annotations

import numpy as np

from autoscaler.scaling.stages.queue import crowd_wants, queue_wants
from autoscaler.scaling.stages.situation import Outcome, Situation
from autoscaler.scaling.table import NEVER, IntArray


def stable(at: Situation, desired: IntArray) -> Outcome:
    """What the stable window calls for; without data the count stays.

    Replicas that did not answer count as idle when that would add replicas, and as full when it would remove some
    (the rule of Kubernetes' HorizontalPodAutoscaler for missing metrics).
    """
    seen = at.seen
    least = at.replicas_for(seen.stable)
    most = at.replicas_for(seen.stable + seen.unknown) if seen.unknown.any() else least
    known = ~np.isnan(seen.stable)
    result = np.where(known, np.maximum(least, np.minimum(most, desired)), desired)
    values = {"work": seen.stable, "window": at.specs.stable_window, "per_replica": at.per_replica}
    return Outcome(result, values)


def panic(at: Situation, desired: IntArray) -> Outcome:
    """A need of `panic_threshold` times the ready replicas is met at once and held for a stable window.

    Knative's panic mode, except that a process that has just started and found replicas does not panic by windows that
    hold but seconds; requests that wait are a fact all the same.
    """
    specs, seen, state, now = at.specs, at.seen, at.state, at.now
    wants = np.maximum(at.replicas_for(seen.panic), np.maximum(queue_wants(at), crowd_wants(at)))
    wants = np.minimum(wants, specs.max)
    trusted = at.is_trusted | at.is_waited_for | (seen.crowd > 0.0)
    over = trusted & (wants >= at.settings.panic_threshold * np.maximum(seen.ready, 1))
    before = now < state.panic_until
    peak = np.where(over | before, np.maximum(np.where(before, state.panic_peak, 0), np.where(trusted, wants, 0)), 0)
    until = np.where(over, now + specs.stable_window, np.where(before, state.panic_until, NEVER))
    values = {"threshold": at.settings.panic_threshold, "ready": seen.ready, "remaining": until - now}
    return Outcome(np.maximum(desired, peak), values, {"panic_until": until, "panic_peak": peak})
