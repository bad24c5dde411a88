"""Answers that come too late call for replicas, where more replicas can make them earlier."""

from __future__ import annotations

import numpy as np

from autoscaler.scaling.stages.situation import Outcome, Situation, once
from autoscaler.scaling.table import IntArray


@once
def slow_wants(at: Situation) -> IntArray:
    """Replicas that answers which come too late, or nearly so, call for; 0 where they call for none."""
    wants = np.zeros(at.rows, np.int64)
    rows = np.flatnonzero(at.specs.latency_objective > 0.0)
    wants[rows] = _wants(at.among(rows)) if rows.size else 0
    return wants


def _wants(at: Situation) -> IntArray:
    """The same where each row has an objective."""
    specs, seen, settings = at.specs, at.seen, at.settings
    ratio = seen.latency / specs.latency_objective  # NaN without data
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
    specs, seen = at.specs, at.seen
    if not specs.latency_objective.any():
        return Outcome(desired)
    wants = slow_wants(at)
    rows = np.flatnonzero(wants > np.maximum(seen.current, desired))
    wait = at.start_time[rows] + at.settings.panic_window_share * specs.stable_window[rows]
    until = at.state.slow_until.copy()
    until[rows] = at.now + wait
    return Outcome(
        np.maximum(desired, wants),
        lambda: {"latency": seen.latency, "objective": specs.latency_objective, "ready": seen.ready},
        {"slow_until": until},
    )
