"""Replicas are kept as long as their start makes it worth while: what was needed lately is held.

A replica that goes too early costs whoever comes next a whole start; one that stays costs its seconds. So the most that
was needed at once within the last `hold_starts` start times is kept (Autopilot's window maxima, EuroSys 2020, with the
window in units of what a mistake costs). Needed at once: what the panic window's work filled, and what waited. Of spare
slots for the ups and downs of load little is held on top: the peaks of those are what is held.

The sliding maximum is kept in `PEAKS` buckets a row and the current one. A peak, which begins a bucket of its own, is
held for exactly the hold; what was wanted later and is less, to within one bucket. A hold that changes (another start
was measured) takes effect at the next peak; one that changes by more than a quarter at once, from when on the peak is
held anew.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from autoscaler.scaling.stages.latency import slow_wants
from autoscaler.scaling.stages.queue import crowd_wants, queue_wants
from autoscaler.scaling.stages.situation import MOST, Outcome, Situation, once
from autoscaler.scaling.table import PEAKS, FloatArray, IntArray, State

T = TypeVar("T", bound=np.generic)
FAR = 0.25  # share by which a hold may differ from the one that the buckets are made for


@once
def hold_of(at: Situation) -> FloatArray:
    """Seconds for which a peak is held: `hold_starts` start times, within bounds."""
    settings = at.settings
    return np.clip(settings.hold_starts * at.start_time, settings.hold_least, settings.hold_most)


def needed(at: Situation) -> IntArray:
    """Replicas that are needed at once, as the hold counts them.

    What waits counts while replicas are ready: the backlog of a start from zero is no lasting need.
    """
    seen = at.seen
    filled = at.replicas_for(seen.panic, at.per_peak) * at.is_trusted
    most = np.maximum(np.maximum(filled, queue_wants(at) * (seen.ready > 0)), crowd_wants(at))
    if at.specs.latency_objective.any():
        most = np.maximum(most, slow_wants(at))
    return np.minimum(np.minimum(most, at.specs.max), int(MOST))


def peak_hold(at: Situation, desired: IntArray) -> Outcome:
    """At least the most that was needed at once within the hold.

    A process that has just started and found replicas takes their number for what was wanted before.
    """
    seen, state = at.seen, at.state
    hold = hold_of(at)
    fresh = np.isnan(state.hold_width)
    wanted = needed(at)
    if fresh.any():
        wanted = np.maximum(wanted, seen.current * (fresh & seen.adopted))
    advanced = _advance(state, at.now)
    peak = np.maximum(advanced.hold_now, advanced.hold_before)
    width = hold / (PEAKS + 1)
    anew = np.flatnonzero(fresh | (wanted >= peak) | (np.abs(width - state.hold_width) > FAR * state.hold_width))
    held = np.maximum(peak, wanted)
    newest = np.maximum(advanced.hold_now, wanted)
    newest[anew] = held[anew]
    kept = {
        "hold_width": _with(state.hold_width, anew, width[anew]),
        "hold_began": _with(advanced.hold_began, anew, at.now),
        "hold_now": newest,
        "hold_before": _with(advanced.hold_before, anew, 0),
        "hold_slot": advanced.hold_slot,
        "peaks": advanced.peaks,
    }
    values = {"peak": held, "hold": hold, "start_time": at.start_time}
    return Outcome(np.maximum(desired, held), lambda: values, kept)


def _with(column: NDArray[T], rows: IntArray, values: Any) -> NDArray[T]:
    """The column with other values in these rows."""
    changed = column.copy()
    changed[rows] = values
    return changed


def _advance(state: State, now: float) -> State:
    """The state with new current buckets where the time of the old ones is over."""
    rows = np.flatnonzero(now - state.hold_began >= state.hold_width)
    if not rows.size:
        return state
    advanced = state.copied("hold_began", "hold_now", "hold_before", "hold_slot", "peaks")
    width, slot = state.hold_width[rows], state.hold_slot[rows]
    passed = np.floor((now - state.hold_began[rows]) / width)
    advanced.peaks[slot, rows] = state.hold_now[rows]
    steps = np.minimum(passed, PEAKS + 1).astype(np.int64)
    for step in range(1, int(steps.max())):  # nothing was decided, hence nothing wanted
        moved = steps > step
        advanced.peaks[(slot[moved] + step) % PEAKS, rows[moved]] = 0
    advanced.hold_slot[rows] = (slot + steps) % PEAKS
    advanced.hold_began[rows] += passed * width
    advanced.hold_now[rows] = 0
    advanced.hold_before[rows] = np.take(advanced.peaks, rows, axis=1).max(axis=0)
    return advanced
