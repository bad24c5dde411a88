"""What waits calls for replicas now, not on average: at the activator, and inside replicas."""

from __future__ import annotations

import numpy as np

from autoscaler.scaling.stages.situation import Outcome, Situation, once
from autoscaler.scaling.table import NAN, FloatArray, IntArray


def coming(at: Situation) -> FloatArray:
    """Requests that wait, and that will when the first replica is ready: what comes until then waits too.

    They go on coming as they came since the first replica was asked for; a panic window longer damps the first moments.
    """
    queued, since = at.seen.queued, starting_for(at)
    rows = np.flatnonzero(since >= 0.0)
    if not rows.size:
        return queued
    expected = queued.copy()
    rate = queued[rows] / (since[rows] + at.settings.panic_window_share * at.specs.stable_window[rows])
    expected[rows] += rate * np.maximum(at.start_time[rows] - since[rows], 0.0)
    return expected


@once
def starting_for(at: Situation) -> FloatArray:
    """Seconds since the first replica was asked for, while some start and none is ready; NaN otherwise."""
    seen, since = at.seen, np.full(at.rows, NAN)
    rows = np.flatnonzero((seen.ready == 0) & (seen.current > 0))
    if not rows.size:
        return since
    asked = at.state.starting_since[rows]
    since[rows] = np.where(np.isnan(asked), seen.starting_seconds[rows] / seen.current[rows], at.now - asked)
    return since


@once
def backlog(at: Situation) -> FloatArray:
    """Slots that the waiting requests call for, beyond what starting replicas will drain before a new one is ready.

    A replica started now is ready when those that start already have been ready for as long as they are old: by then
    each has drained `target` slots for its age. Ready replicas are not counted on: they have to do with what keeps
    coming; nor is anything where no request was measured yet. Of what is left, requests that take less than
    `drain_within` seconds call for the fraction of a slot that finishes them within it.
    """
    seen = at.seen
    service_time = np.where(seen.service_time > 0.0, seen.service_time, np.inf)
    drained = seen.starting_seconds * at.specs.target / service_time
    weight = np.minimum(1.0, service_time / at.settings.drain_within)
    return np.maximum(coming(at) - drained, 0.0) * weight


@once
def work_now(at: Situation) -> FloatArray:
    """Slots in use by the panic window; ready replicas that are not heard while requests wait are taken for full."""
    return np.where(np.isnan(at.seen.panic), at.seen.ready * at.per_peak, at.seen.panic)


@once
def queue_wants(at: Situation) -> IntArray:
    """Replicas that the waiting requests and the work in hand call for; 0 where none waits."""
    wants = np.zeros(at.rows, np.int64)
    rows = np.flatnonzero(at.is_waited_for)
    if rows.size:
        some = at.among(rows)
        wants[rows] = np.maximum(some.replicas_for(work_now(some) + backlog(some), some.per_peak), 1)
    return wants


def waiting(at: Situation, desired: IntArray) -> Outcome:
    """Requests that wait at the activator call for replicas at once."""
    return Outcome(
        np.maximum(desired, queue_wants(at)),
        lambda: {"queued": at.seen.queued, "backlog": backlog(at), "work": work_now(at), "per_replica": at.per_peak},
        {"starting_since": at.now - starting_for(at)},
    )


def keep_while_waiting(at: Situation, desired: IntArray) -> Outcome:
    """Nothing goes while requests wait: what starts is needed for them."""
    current = at.seen.current
    return Outcome(np.maximum(desired, current * at.is_waited_for), lambda: {"current": current})


@once
def crowd_wants(at: Situation) -> IntArray:
    """Replicas that hold what is used or waited for inside replicas; 0 where none waits."""
    return at.replicas_for(at.seen.crowd) if at.seen.crowd.any() else np.zeros(at.rows, np.int64)


def crowded(at: Situation, desired: IntArray) -> Outcome:
    """Requests that wait inside replicas call for others at once, which those that come next will find free.

    They did so for a tick already: a burst of short requests, gone before another replica is there, calls for none.
    """
    if not at.seen.crowd.any():
        return Outcome(desired)
    values = {"crowd": at.seen.crowd, "per_replica": at.per_replica}
    return Outcome(np.maximum(desired, crowd_wants(at)), lambda: values)
