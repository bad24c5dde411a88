"""Stages that bound every decision: missing data, rate limits, the policy's bounds, GPUs, and failed starts."""

from __future__ import annotations

import numpy as np

from autoscaler.scaling.stages.stage import StageInputs, StageResult, once
from autoscaler.scaling.table import NAN, IntArray


def hold_without_data(inputs: StageInputs, desired: IntArray) -> StageResult:
    """Prevent scale-down before a stable window's worth of readings: after a restart, a source failure, or a new
    replica.
    """
    seen = inputs.seen
    return StageResult(
        np.maximum(desired, seen.current * inputs.is_young),
        lambda: {"covered": seen.covered, "window": inputs.specs.stable_window},
    )


def rate_limits(inputs: StageInputs, desired: IntArray) -> StageResult:
    """Limit one decision to `max_up_rate` times the ready replicas and to the current replicas ÷ `max_down_rate`."""
    current = inputs.seen.current
    most = np.ceil(inputs.settings.max_up_rate * np.maximum(inputs.seen.ready, 1)).astype(np.int64)
    most = np.maximum(most, current)
    least = np.floor(current / inputs.settings.max_down_rate).astype(np.int64)
    values = {"current": current, "least": least, "most": most}
    return StageResult(np.minimum(np.maximum(desired, least), most), lambda: values)


def activation_scale(inputs: StageInputs, desired: IntArray) -> StageResult:
    """Apply the activation scale when a revision leaves zero."""
    activation = inputs.specs.activation
    leaves = (inputs.seen.current == 0) & (desired > 0)
    if not leaves.any():
        return StageResult(desired)
    return StageResult(np.maximum(desired, activation * leaves), lambda: {"activation": activation})


def scale_down_delay(inputs: StageInputs, desired: IntArray) -> StageResult:
    """Remove replicas only after lower demand for the whole delay, and then down to the highest demand within it."""
    seen, state, delay = inputs.seen, inputs.state, inputs.specs.scale_down_delay
    if not delay.any():
        return StageResult(
            desired, state={"below_since": np.full(len(delay), NAN), "below_peak": np.zeros_like(desired)}
        )
    less = (desired < seen.current) & (delay > 0.0)
    fresh = np.isnan(state.below_since)
    since = np.where(less, np.where(fresh, inputs.now, state.below_since), NAN)
    peak = np.where(less, np.maximum(np.where(fresh, 0, state.below_peak), desired), 0)
    over = inputs.now - since >= delay
    result = np.where(less, np.where(over, peak, seen.current), desired)
    kept = {"below_since": np.where(over, NAN, since), "below_peak": np.where(over, 0, peak)}
    return StageResult(result, lambda: {"delay": delay}, kept)


@once
def least_replicas(inputs: StageInputs) -> IntArray:
    """Return the lower bound: `min` while a route points to the revision, and the initial scale until it was reached
    once.
    """
    specs = inputs.specs
    return np.minimum(np.maximum(specs.min * specs.reachable, specs.initial * ~specs.initialized), specs.max)


def bounds(inputs: StageInputs, desired: IntArray) -> StageResult:
    """Apply the policy's minimum and maximum."""
    least, most = least_replicas(inputs), inputs.specs.max
    return StageResult(np.minimum(np.maximum(desired, least), most), lambda: {"least": least, "most": most})


def gpus(inputs: StageInputs, desired: IntArray) -> StageResult:
    """Limit the replicas to those for which GPUs are granted (`autoscaler/gpu/sharing.py`), even below the minimum."""
    granted = inputs.seen.granted
    return StageResult(np.minimum(desired, granted), lambda: {"granted": granted})


def give_up(inputs: StageInputs, desired: IntArray) -> StageResult:
    """Stop starting a revision that missed its progress deadline and has no queued requests.

    A revision that was ready once and has a lower bound is retried for ever, as in Knative.
    """
    specs = inputs.specs
    if not specs.expired.any():
        return StageResult(desired)
    hopeless = specs.expired & (~specs.initialized | (least_replicas(inputs) == 0)) & ~inputs.is_waited_for
    return StageResult(np.where(hopeless, 0, desired))
