"""Answers that come too late call for replicas, where more replicas can make them earlier."""

from __future__ import annotations

import numpy as np

from autoscaler.scaling.stages.situation import Outcome, Situation, once
from autoscaler.scaling.table import FloatArray, IntArray


@once
def slow_wants(at: Situation) -> IntArray:
    """Replicas that answers which come too late, or nearly so, call for; 0 where they call for none."""
    specs, seen, settings = at.specs, at.seen, at.settings
    ratio = _lateness(at)
    believed = (ratio > settings.near_objective) & (seen.answers >= settings.enough_answers)
    busy = seen.panic >= settings.busy_share * seen.ready * specs.target
    arrived = (seen.ready >= seen.current) & (at.now >= at.state.slow_until)
    step = np.where(arrived & (ratio > 1.0), np.minimum(ratio, settings.most_slow_step), 1.0)
    wanted = np.ceil(seen.ready * step - settings.tolerance).astype(np.int64)
    return np.where(believed & busy, wanted, 0)


def slow_answers(at: Situation, desired: IntArray) -> Outcome:
    """Replicas in proportion to latency ÷ objective, at most `most_slow_step` times those that are ready.

    Only by enough answers, and only where the replicas are busy: more of them do not make a slow model fast. Then it
    waits until what it asked for has arrived, and for a panic window of answers by all: at most one step a start time.
    Near the objective nothing goes, since fewer replicas would miss it.
    """
    specs, seen, state = at.specs, at.seen, at.state
    if not specs.latency_objective.any():
        return Outcome(desired)
    wants = slow_wants(at)
    raised = (wants > seen.current) & (wants > desired)
    wait = at.start_time + at.settings.panic_window_share * specs.stable_window
    until = np.where(raised, at.now + wait, state.slow_until)
    values = {"latency": seen.latency, "objective": specs.latency_objective, "ready": seen.ready}
    return Outcome(np.maximum(desired, wants), values, {"slow_until": until})


def _lateness(at: Situation) -> FloatArray:
    """Latency ÷ objective; NaN without data, 0 without an objective."""
    objective = at.specs.latency_objective
    return np.where(objective > 0.0, at.seen.latency / np.where(objective > 0.0, objective, 1.0), 0.0)
