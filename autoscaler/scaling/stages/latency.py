"""The stage that adds replicas when responses miss the latency objective and more replicas can help."""

from __future__ import annotations

import numpy as np

from autoscaler.scaling.stages.stage import StageInputs, StageResult, once
from autoscaler.scaling.table import IntArray


@once
def wanted_for_latency(inputs: StageInputs) -> IntArray:
    """Return the replicas needed because responses are too slow or nearly so; 0 where they are not."""
    wants = np.zeros(inputs.rows, np.int64)
    rows = np.flatnonzero(inputs.specs.latency_objective > 0.0)
    wants[rows] = _wants(inputs.among(rows)) if rows.size else 0
    return wants


def _wants(inputs: StageInputs) -> IntArray:
    """Return the same for rows that all have an objective."""
    specs, seen, settings = inputs.specs, inputs.seen, inputs.settings
    ratio = seen.latency / specs.latency_objective  # NaN without data
    believed = (ratio > settings.near_objective) & (seen.answers >= settings.enough_answers)
    busy = seen.panic >= settings.busy_share * seen.ready * specs.target
    arrived = (seen.ready >= seen.current) & (inputs.now >= inputs.state.slow_until)
    step = np.where(arrived & (ratio > 1.0), np.minimum(ratio, settings.most_slow_step), 1.0)
    wanted = np.ceil(seen.ready * step - settings.tolerance).astype(np.int64)
    return np.where(believed & busy, wanted, 0)


def slow_answers(inputs: StageInputs, desired: IntArray) -> StageResult:
    """Scale in proportion to latency ÷ objective, by at most `most_slow_step` times the ready replicas.

    This requires enough responses and busy replicas: more replicas do not make a slow model faster. Afterwards the
    stage waits until the new replicas are ready and for a panic window of responses, so it takes at most one step per
    start time. Near the objective no replica is removed, since fewer replicas would miss it.
    """
    specs, seen = inputs.specs, inputs.seen
    if not specs.latency_objective.any():
        return StageResult(desired)
    wants = wanted_for_latency(inputs)
    rows = np.flatnonzero(wants > np.maximum(seen.current, desired))
    wait = inputs.start_time[rows] + inputs.settings.panic_window_share * specs.stable_window[rows]
    until = inputs.state.slow_until.copy()
    until[rows] = inputs.now + wait
    return StageResult(
        np.maximum(desired, wants),
        lambda: {"latency": seen.latency, "objective": specs.latency_objective, "ready": seen.ready},
        {"slow_until": until},
    )
