"""The tables of the decider: one row per revision, one column per quantity.

`Specs` contains the desired settings, `Observations` the measurements, `DeciderState` the decider's memory between
decisions. Units: replicas, slots, seconds (monotonic for points in time). NaN means "no data", never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Rows = IntArray | slice

NAN = float("nan")
NEVER = float("-inf")
PEAKS = 16  # buckets of the peak hold: the hold of a value that is not a peak ends at most 1/17 early
UNLIMITED = 10**9  # replicas: more than any bound of a policy
AUTO = -1.0  # of scale_to_zero_after: derived from the start time (`stages/zero.py`)


def default(value: float | int | bool) -> Mapping[str, Any]:
    """Return the metadata of a column with this default value."""
    return {"default": value, "dtype": {bool: np.bool_, int: np.int64, float: np.float64}[type(value)], "shape": ()}


@dataclass(frozen=True, slots=True)
class Columns:
    """Arrays whose last axis is the row. `take` copies the arrays, unless the rows are a slice."""

    @classmethod
    def empty(cls, rows: int) -> Self:
        """Return a table with `rows` rows of defaults."""
        return cls(**{one.name: _filled(one.metadata, rows, one.metadata["default"]) for one in fields(cls)})

    @classmethod
    def of(cls, **columns: Any) -> Self:
        """Return a table from sequences (or scalars for one row); other columns have their defaults."""
        rows = max((np.shape(np.atleast_1d(values))[-1] for values in columns.values()), default=1)
        made = {one.name: columns.get(one.name, one.metadata["default"]) for one in fields(cls)}
        return cls(**{one.name: _filled(one.metadata, rows, made[one.name]) for one in fields(cls)})

    def take(self, rows: Rows) -> Self:
        """Return a table of these rows."""
        return type(self)(**{name: getattr(self, name)[..., rows] for name in self.names()})

    def put(self, rows: Rows, table: Self) -> None:
        """Write the rows of `table` to `rows` of this one."""
        for name in self.names():
            getattr(self, name)[..., rows] = getattr(table, name)

    def set_row(self, row: int, values: Mapping[str, float | int | bool]) -> None:
        """Write one row; columns that `values` does not contain get their defaults."""
        for one in fields(self):
            getattr(self, one.name)[..., row] = values.get(one.name, one.metadata["default"])

    def grown(self, rows: int) -> Self:
        """Return the table extended to `rows` rows with defaults."""
        fresh = self.empty(rows)
        fresh.put(slice(0, len(self)), self)
        return fresh

    def copied(self, *names: str) -> Self:
        """Return the table with copies of these columns."""
        return replace(self, **{name: getattr(self, name).copy() for name in names})

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of the columns."""
        return tuple(one.name for one in fields(cls))

    def __len__(self) -> int:
        return int(getattr(self, fields(self)[0].name).shape[-1])


def _filled(kind: Mapping[str, Any], rows: int, values: Any) -> NDArray[Any]:
    return np.full((*kind["shape"], rows), values, kind["dtype"])


@dataclass(frozen=True, slots=True)
class Specs(Columns):
    """Desired settings: the policy of each revision, and the state of its PodAutoscaler."""

    min: IntArray = field(metadata=default(0))
    max: IntArray = field(metadata=default(1))
    initial: IntArray = field(metadata=default(1))  # replicas that must be ready once
    activation: IntArray = field(metadata=default(1))  # minimum replicas when it leaves zero
    target: FloatArray = field(metadata=default(1.0))  # slots of one replica
    utilization: FloatArray = field(metadata=default(1.0))  # share of the slots to use on average
    scale_to_zero_after: FloatArray = field(metadata=default(60.0))  # s, or AUTO
    scale_down_delay: FloatArray = field(metadata=default(0.0))  # s
    stable_window: FloatArray = field(metadata=default(60.0))  # s
    latency_objective: FloatArray = field(metadata=default(0.0))  # s for a response; 0: no objective
    latency_quantile: FloatArray = field(metadata=default(0.95))  # share of responses to meet it
    reachable: BoolArray = field(metadata=default(True))  # False: no route points to it
    initialized: BoolArray = field(metadata=default(True))  # the initial scale was reached once
    expired: BoolArray = field(metadata=default(False))  # failed to start within its progress deadline


@dataclass(frozen=True, slots=True)
class Observations(Columns):
    """Measurements of each revision."""

    current: IntArray = field(metadata=default(0))  # desired replicas of the Deployment at present
    ready: IntArray = field(metadata=default(0))
    starting_seconds: FloatArray = field(metadata=default(0.0))  # sum of the ages of starting replicas
    stable: FloatArray = field(metadata=default(NAN))  # slots in use on average over the stable window
    panic: FloatArray = field(metadata=default(NAN))  # the same over the panic window
    unknown: FloatArray = field(metadata=default(0.0))  # slots that unanswering replicas may use
    age: FloatArray = field(metadata=default(NAN))  # s since the first reading
    covered: FloatArray = field(metadata=default(0.0))  # s of the stable window with readings
    queued: FloatArray = field(metadata=default(0.0))  # requests queued at the activator now
    crowd: FloatArray = field(metadata=default(0.0))  # slots used or waited for inside replicas where requests wait
    active: FloatArray = field(metadata=default(0.0))  # requests forwarded by the activator and not yet answered
    idle: FloatArray = field(metadata=default(NAN))  # s without any work; NaN unless all replicas were read
    service_time: FloatArray = field(metadata=default(NAN))  # slot-seconds of one request, as measured
    start_time: FloatArray = field(metadata=default(NAN))  # measured s from the request for a replica to its readiness
    latency: FloatArray = field(metadata=default(NAN))  # s; the objective's quantile of recent responses
    answers: FloatArray = field(metadata=default(0.0))  # number of responses behind `latency`
    adopted: BoolArray = field(metadata=default(False))  # had replicas when this process started
    granted: IntArray = field(metadata=default(UNLIMITED))  # replicas for which it has GPUs, or may have them


@dataclass(frozen=True, slots=True)
class DeciderState(Columns):
    """The decider's memory."""

    panic_until: FloatArray = field(metadata=default(NEVER))
    panic_peak: IntArray = field(metadata=default(0))  # most replicas needed during this panic
    below_since: FloatArray = field(metadata=default(NAN))  # since when fewer than the current replicas are enough
    below_peak: IntArray = field(metadata=default(0))  # most replicas needed in that time
    at_rest: BoolArray = field(metadata=default(False))  # was idle for long enough at the last complete reading
    starting_since: FloatArray = field(metadata=default(NAN))  # request of the first replica, while none is ready
    slow_until: FloatArray = field(metadata=default(NEVER))  # until when slow responses add no further replicas
    hold_width: FloatArray = field(metadata=default(NAN))  # s of a bucket of the peak hold; NaN before its first
    hold_began: FloatArray = field(metadata=default(0.0))  # when its current bucket began
    hold_now: IntArray = field(metadata=default(0))  # most replicas needed in the current bucket
    hold_before: IntArray = field(metadata=default(0))  # most replicas needed in the buckets before
    hold_slot: IntArray = field(metadata=default(0))  # index of the current bucket in `peaks`
    peaks: NDArray[np.int32] = field(metadata={"default": 0, "dtype": np.int32, "shape": (PEAKS,)})
    """Most replicas needed in each earlier bucket."""
