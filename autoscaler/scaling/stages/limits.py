"""What bounds a decision whatever was found: data, rate, the policy's numbers, and what cannot start."""

from __future__ import annotations

import numpy as np

from autoscaler.scaling.stages.situation import Outcome, Situation
from autoscaler.scaling.table import NAN, IntArray, Specs


def hold_without_data(at: Situation, desired: IntArray) -> Outcome:
    """Nothing is scaled down before a stable window's worth of readings: a restart, a silent source, a new replica."""
    result = np.where(at.is_young, np.maximum(desired, at.seen.current), desired)
    return Outcome(result, {"covered": at.seen.covered, "window": at.specs.stable_window})


def rate_limits(at: Situation, desired: IntArray) -> Outcome:
    """At most `max_up_rate` times the ready replicas, at least the current ones ÷ `max_down_rate`."""
    current = at.seen.current
    most = np.ceil(at.settings.max_up_rate * np.maximum(at.seen.ready, 1)).astype(np.int64)
    most = np.maximum(most, current)
    least = np.floor(current / at.settings.max_down_rate).astype(np.int64)
    values = {"current": current, "least": least, "most": most}
    return Outcome(np.minimum(np.maximum(desired, least), most), values)


def activation_scale(at: Situation, desired: IntArray) -> Outcome:
    """Who leaves zero starts with at least this many."""
    leaves = (at.seen.current == 0) & (desired > 0)
    result = np.where(leaves, np.maximum(desired, at.specs.activation), desired)
    return Outcome(result, {"activation": at.specs.activation})


def scale_down_delay(at: Situation, desired: IntArray) -> Outcome:
    """Replicas go only after less was enough for the whole delay; then to the most that was wanted meanwhile."""
    seen, state, delay = at.seen, at.state, at.specs.scale_down_delay
    if not delay.any():
        return Outcome(desired, state={"below_since": np.full(len(delay), NAN), "below_peak": np.zeros_like(desired)})
    less = (desired < seen.current) & (delay > 0.0)
    fresh = np.isnan(state.below_since)
    since = np.where(less, np.where(fresh, at.now, state.below_since), NAN)
    peak = np.where(less, np.maximum(np.where(fresh, 0, state.below_peak), desired), 0)
    over = at.now - since >= delay
    result = np.where(less, np.where(over, peak, seen.current), desired)
    kept = {"below_since": np.where(over, NAN, since), "below_peak": np.where(over, 0, peak)}
    return Outcome(result, {"delay": delay}, kept)


def least_replicas(specs: Specs) -> IntArray:
    """The lower bound: `min` while a route points to it, and the initial scale until it was reached once."""
    least = np.where(specs.reachable, specs.min, 0)
    least = np.where(specs.initialized, least, np.maximum(least, specs.initial))
    return np.minimum(least, specs.max)


def bounds(at: Situation, desired: IntArray) -> Outcome:
    """Between the least and the most replicas of the policy."""
    least = least_replicas(at.specs)
    return Outcome(np.minimum(np.maximum(desired, least), at.specs.max), {"least": least, "most": at.specs.max})


def give_up(at: Situation, desired: IntArray) -> Outcome:
    """What did not start within its progress deadline, and is not waited for, is not tried any longer.

    A revision that once was ready and has a lower bound is tried for ever, as Knative does.
    """
    specs = at.specs
    if not specs.expired.any():
        return Outcome(desired)
    hopeless = specs.expired & (~specs.initialized | (least_replicas(specs) == 0)) & ~at.is_waited_for
    return Outcome(np.where(hopeless, 0, desired))
