"""What bounds a decision whatever was found: data, rate, the policy's numbers, and what cannot start."""

from __future__ import annotations

import numpy as np

from autoscaler.scaling.stages.situation import Outcome, Situation, once
from autoscaler.scaling.table import NAN, IntArray


def hold_without_data(at: Situation, desired: IntArray) -> Outcome:
    """Nothing is scaled down before a stable window's worth of readings: a restart, a silent source, a new replica."""
    seen = at.seen
    return Outcome(
        np.maximum(desired, seen.current * at.is_young),
        lambda: {"covered": seen.covered, "window": at.specs.stable_window},
    )


def rate_limits(at: Situation, desired: IntArray) -> Outcome:
    """At most `max_up_rate` times the ready replicas, at least the current ones ÷ `max_down_rate`."""
    current = at.seen.current
    most = np.ceil(at.settings.max_up_rate * np.maximum(at.seen.ready, 1)).astype(np.int64)
    most = np.maximum(most, current)
    least = np.floor(current / at.settings.max_down_rate).astype(np.int64)
    values = {"current": current, "least": least, "most": most}
    return Outcome(np.minimum(np.maximum(desired, least), most), lambda: values)


def activation_scale(at: Situation, desired: IntArray) -> Outcome:
    """Who leaves zero starts with at least this many."""
    activation = at.specs.activation
    leaves = (at.seen.current == 0) & (desired > 0)
    if not leaves.any():
        return Outcome(desired)
    return Outcome(np.maximum(desired, activation * leaves), lambda: {"activation": activation})


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
    return Outcome(result, lambda: {"delay": delay}, kept)


@once
def least_replicas(at: Situation) -> IntArray:
    """The lower bound: `min` while a route points to it, and the initial scale until it was reached once."""
    specs = at.specs
    return np.minimum(np.maximum(specs.min * specs.reachable, specs.initial * ~specs.initialized), specs.max)


def bounds(at: Situation, desired: IntArray) -> Outcome:
    """Between the least and the most replicas of the policy."""
    least, most = least_replicas(at), at.specs.max
    return Outcome(np.minimum(np.maximum(desired, least), most), lambda: {"least": least, "most": most})


def give_up(at: Situation, desired: IntArray) -> Outcome:
    """What did not start within its progress deadline, and is not waited for, is not tried any longer.

    A revision that once was ready and has a lower bound is tried for ever, as Knative does.
    """
    specs = at.specs
    if not specs.expired.any():
        return Outcome(desired)
    hopeless = specs.expired & (~specs.initialized | (least_replicas(at) == 0)) & ~at.is_waited_for
    return Outcome(np.where(hopeless, 0, desired))
