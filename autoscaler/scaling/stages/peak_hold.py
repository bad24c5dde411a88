"""The stage that holds recent peak demand for a multiple of the start time.

A replica that is removed too early costs the next caller a whole start; an idle one costs its seconds. Therefore the
highest demand of the last `hold_starts` start times is kept (Autopilot's window maxima, EuroSys 2020, with the window
in units of the cost of a mistake). Demand is what the panic window's work filled, plus the queue. The hold adds little
headroom for fluctuations, because the peaks of the fluctuations are what is held.

The sliding maximum is stored in `PEAKS` buckets per row, plus the current one. A peak begins its own bucket and is held
for exactly the hold; lower demand after it, for the hold to within one bucket. If a new start time changes the hold, it
takes effect at the next peak; a change of more than a quarter takes effect at once, and the peak is then held again
from that time.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from autoscaler.scaling.stages.latency import wanted_for_latency
from autoscaler.scaling.stages.queue import wanted_for_crowd, wanted_for_queue
from autoscaler.scaling.stages.stage import MOST, StageInputs, StageResult, once
from autoscaler.scaling.table import PEAKS, DeciderState, FloatArray, IntArray

T = TypeVar("T", bound=np.generic)
FAR = 0.25  # relative change of the hold that requires new buckets


@once
def hold_of(inputs: StageInputs) -> FloatArray:
    """Return the seconds for which a peak is held: `hold_starts` start times, within bounds."""
    settings = inputs.settings
    return np.clip(settings.hold_starts * inputs.start_time, settings.hold_least, settings.hold_most)


def needed(inputs: StageInputs) -> IntArray:
    """Return the present demand in replicas, for the hold.

    Queued requests count only while replicas are ready: the backlog of a start from zero is not lasting demand.
    """
    seen = inputs.seen
    filled = inputs.replicas_for(seen.panic, inputs.per_peak) * inputs.is_trusted
    most = np.maximum(np.maximum(filled, wanted_for_queue(inputs) * (seen.ready > 0)), wanted_for_crowd(inputs))
    if inputs.specs.latency_objective.any():
        most = np.maximum(most, wanted_for_latency(inputs))
    return np.minimum(np.minimum(most, inputs.specs.max), int(MOST))


def peak_hold(inputs: StageInputs, desired: IntArray) -> StageResult:
    """Keep at least the highest demand within the hold.

    A process that has just started and found replicas uses their number as the earlier demand.
    """
    seen, state = inputs.seen, inputs.state
    hold = hold_of(inputs)
    fresh = np.isnan(state.hold_width)
    wanted = needed(inputs)
    if fresh.any():
        wanted = np.maximum(wanted, seen.current * (fresh & seen.adopted))
    advanced = _advance(state, inputs.now)
    peak = np.maximum(advanced.hold_now, advanced.hold_before)
    width = hold / (PEAKS + 1)
    renewed = np.flatnonzero(fresh | (wanted >= peak) | (np.abs(width - state.hold_width) > FAR * state.hold_width))
    held = np.maximum(peak, wanted)
    newest = np.maximum(advanced.hold_now, wanted)
    newest[renewed] = held[renewed]
    kept = {
        "hold_width": _with(state.hold_width, renewed, width[renewed]),
        "hold_began": _with(advanced.hold_began, renewed, inputs.now),
        "hold_now": newest,
        "hold_before": _with(advanced.hold_before, renewed, 0),
        "hold_slot": advanced.hold_slot,
        "peaks": advanced.peaks,
    }
    values = {"peak": held, "hold": hold, "start_time": inputs.start_time}
    return StageResult(np.maximum(desired, held), lambda: values, kept)


def _with(column: NDArray[T], rows: IntArray, values: Any) -> NDArray[T]:
    """Return the column with other values in these rows."""
    changed = column.copy()
    changed[rows] = values
    return changed


def _advance(state: DeciderState, now: float) -> DeciderState:
    """Return the state with new current buckets where the old ones have expired."""
    rows = np.flatnonzero(now - state.hold_began >= state.hold_width)
    if not rows.size:
        return state
    advanced = state.copied("hold_began", "hold_now", "hold_before", "hold_slot", "peaks")
    width, slot = state.hold_width[rows], state.hold_slot[rows]
    passed = np.floor((now - state.hold_began[rows]) / width)
    advanced.peaks[slot, rows] = state.hold_now[rows]
    steps = np.minimum(passed, PEAKS + 1).astype(np.int64)
    for step in range(1, int(steps.max())):  # no decision in these buckets, so no demand
        moved = steps > step
        advanced.peaks[(slot[moved] + step) % PEAKS, rows[moved]] = 0
    advanced.hold_slot[rows] = (slot + steps) % PEAKS
    advanced.hold_began[rows] += passed * width
    advanced.hold_now[rows] = 0
    advanced.hold_before[rows] = np.take(advanced.peaks, rows, axis=1).max(axis=0)
    return advanced
