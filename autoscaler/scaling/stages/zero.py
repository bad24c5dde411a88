"""Stages for the removal of the last replica."""

from __future__ import annotations

import numpy as np

from autoscaler.scaling.stages.peak_hold import hold_of
from autoscaler.scaling.stages.stage import StageInputs, StageResult, once, where
from autoscaler.scaling.table import FloatArray, IntArray


@once
def idle_limit(inputs: StageInputs) -> FloatArray:
    """Return the idle seconds until the last replica is removed: the policy's value, else the hold, at least a minute.

    The next caller must wait for a start, so the last replica is also kept for a multiple of the start time.
    """
    limit_of_policy = inputs.specs.scale_to_zero_after
    longest = where(limit_of_policy < 0.0, np.maximum(hold_of(inputs), inputs.settings.least_idle), limit_of_policy)
    limit: FloatArray = np.maximum(longest, inputs.specs.scale_down_delay)
    return limit


def keep_one(inputs: StageInputs, desired: IntArray) -> StageResult:
    """Keep the last replica, regardless of averages, until `idle` removes it."""
    seen = inputs.seen
    alive = (seen.current > 0) | inputs.is_waited_for
    return StageResult(np.maximum(desired, alive), lambda: {"idle": seen.idle, "limit": idle_limit(inputs)})


def idle(inputs: StageInputs, desired: IntArray) -> StageResult:
    """Remove all replicas once neither they nor the activator had work for long enough.

    A terminating replica stops answering, which does not count as work. Otherwise the averages of the time before would
    bring all replicas back, only to be removed again.
    """
    seen, limit = inputs.seen, idle_limit(inputs)
    silent = inputs.state.at_rest & np.isnan(seen.idle)
    over = (silent | (seen.idle >= limit)) & (seen.active <= 0.0) & ~inputs.is_waited_for
    return StageResult(desired * ~over, lambda: {"idle": seen.idle, "limit": limit}, {"at_rest": over})
