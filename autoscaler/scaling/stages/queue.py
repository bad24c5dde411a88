"""Stages that follow queued requests, which count at once and not on average: at the activator, and inside replicas."""

from __future__ import annotations

import numpy as np

from autoscaler.scaling.stages.stage import StageInputs, StageResult, once
from autoscaler.scaling.table import NAN, FloatArray, IntArray


def coming(inputs: StageInputs) -> FloatArray:
    """Return the requests that are queued now, and those expected until the first replica is ready.

    Expected requests arrive at the rate since the first replica was requested. A panic window added to that time damps
    the first estimates.
    """
    queued, since = inputs.seen.queued, starting_for(inputs)
    rows = np.flatnonzero(since >= 0.0)
    if not rows.size:
        return queued
    expected = queued.copy()
    rate = queued[rows] / (since[rows] + inputs.settings.panic_window_share * inputs.specs.stable_window[rows])
    expected[rows] += rate * np.maximum(inputs.start_time[rows] - since[rows], 0.0)
    return expected


@once
def starting_for(inputs: StageInputs) -> FloatArray:
    """Return the seconds since the first replica was requested, while some start and none is ready; NaN otherwise."""
    seen, since = inputs.seen, np.full(inputs.rows, NAN)
    rows = np.flatnonzero((seen.ready == 0) & (seen.current > 0))
    if not rows.size:
        return since
    requested = inputs.state.starting_since[rows]
    since[rows] = np.where(
        np.isnan(requested), seen.starting_seconds[rows] / seen.current[rows], inputs.now - requested
    )
    return since


@once
def backlog(inputs: StageInputs) -> FloatArray:
    """Return the slots needed for the queued requests, beyond what starting replicas will drain before a new one is
    ready.

    A replica started now becomes ready when the currently starting ones have been ready for as long as their present
    age. By then, each has drained `target` slots for that time. Ready replicas are not counted, because they serve the
    ongoing arrivals. Nothing is subtracted while no request has been measured. Of the rest, requests shorter than
    `drain_within` seconds need only the fraction of a slot that finishes them within that time.
    """
    seen = inputs.seen
    service_time = np.where(seen.service_time > 0.0, seen.service_time, np.inf)
    drained = seen.starting_seconds * inputs.specs.target / service_time
    weight = np.minimum(1.0, service_time / inputs.settings.drain_within)
    return np.maximum(coming(inputs) - drained, 0.0) * weight


@once
def work_now(inputs: StageInputs) -> FloatArray:
    """Return the slots in use in the panic window. Ready replicas without readings count as full while requests are
    queued.
    """
    return np.where(np.isnan(inputs.seen.panic), inputs.seen.ready * inputs.per_peak, inputs.seen.panic)


@once
def wanted_for_queue(inputs: StageInputs) -> IntArray:
    """Return the replicas needed for queued requests and current work; 0 without queued requests."""
    wants = np.zeros(inputs.rows, np.int64)
    rows = np.flatnonzero(inputs.is_waited_for)
    if rows.size:
        some = inputs.among(rows)
        wants[rows] = np.maximum(some.replicas_for(work_now(some) + backlog(some), some.per_peak), 1)
    return wants


def waiting(inputs: StageInputs, desired: IntArray) -> StageResult:
    """Add replicas at once for requests queued at the activator."""
    return StageResult(
        np.maximum(desired, wanted_for_queue(inputs)),
        lambda: {
            "queued": inputs.seen.queued,
            "backlog": backlog(inputs),
            "work": work_now(inputs),
            "per_replica": inputs.per_peak,
        },
        {"starting_since": inputs.now - starting_for(inputs)},
    )


def keep_while_waiting(inputs: StageInputs, desired: IntArray) -> StageResult:
    """Remove no replica while requests are queued: starting ones are needed for them."""
    current = inputs.seen.current
    return StageResult(np.maximum(desired, current * inputs.is_waited_for), lambda: {"current": current})


@once
def wanted_for_crowd(inputs: StageInputs) -> IntArray:
    """Return the replicas needed for the slots used or waited for inside replicas; 0 without queued requests there."""
    return inputs.replicas_for(inputs.seen.crowd) if inputs.seen.crowd.any() else np.zeros(inputs.rows, np.int64)


def crowded(inputs: StageInputs, desired: IntArray) -> StageResult:
    """Add replicas at once for requests queued inside replicas, so that the next requests find free ones.

    Such requests have been queued for a tick already, so a burst of short requests that ends earlier adds no replica.
    """
    if not inputs.seen.crowd.any():
        return StageResult(desired)
    values = {"crowd": inputs.seen.crowd, "per_replica": inputs.per_replica}
    return StageResult(np.maximum(desired, wanted_for_crowd(inputs)), lambda: values)
