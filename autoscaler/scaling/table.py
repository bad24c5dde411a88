"""The arrays that the decider works on: one row per revision, one column per number.

`Specs` is what is wished, `Observations` what is seen, `State` what the decider remembers from decision to decision.
Units: replicas, slots, seconds (monotonic where a point in time). NaN means "no data", never zero.
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
PEAKS = 16  # buckets of the peak-hold: a hold that is no peak's ends at most a 17th of it early
AUTO = -1.0  # of scale_to_zero_after: as long as the start of a replica makes worth while (`stages/zero.py`)


def default(value: float | int | bool) -> Mapping[str, Any]:
    """The metadata of a column of such numbers."""
    return {"default": value, "dtype": {bool: np.bool_, int: np.int64, float: np.float64}[type(value)], "shape": ()}


@dataclass(frozen=True, slots=True)
class Columns:
    """Arrays of which the last axis is the row. The arrays of a table taken by `take` are copies, unless by a slice."""

    @classmethod
    def empty(cls, rows: int) -> Self:
        """`rows` rows of the columns' defaults."""
        return cls(**{one.name: _filled(one.metadata, rows, one.metadata["default"]) for one in fields(cls)})

    @classmethod
    def of(cls, **columns: Any) -> Self:
        """A table from sequences (or scalars for one row); columns not named have their defaults."""
        rows = max((np.shape(np.atleast_1d(values))[-1] for values in columns.values()), default=1)
        made = {one.name: columns.get(one.name, one.metadata["default"]) for one in fields(cls)}
        return cls(**{one.name: _filled(one.metadata, rows, made[one.name]) for one in fields(cls)})

    def take(self, rows: Rows) -> Self:
        """A table of these rows."""
        return type(self)(**{name: getattr(self, name)[..., rows] for name in self.names()})

    def put(self, rows: Rows, table: Self) -> None:
        """Write the rows of `table` to `rows` of this one."""
        for name in self.names():
            getattr(self, name)[..., rows] = getattr(table, name)

    def set_row(self, row: int, values: Mapping[str, float | int | bool]) -> None:
        """Write one row; columns that `values` does not name get their defaults."""
        for one in fields(self):
            getattr(self, one.name)[..., row] = values.get(one.name, one.metadata["default"])

    def grown(self, rows: int) -> Self:
        """The same table with defaults up to `rows` rows."""
        fresh = self.empty(rows)
        fresh.put(slice(0, len(self)), self)
        return fresh

    def copied(self, *names: str) -> Self:
        """The same table with copies of these columns."""
        return replace(self, **{name: getattr(self, name).copy() for name in names})

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Of the columns."""
        return tuple(one.name for one in fields(cls))

    def __len__(self) -> int:
        return int(getattr(self, fields(self)[0].name).shape[-1])


def _filled(kind: Mapping[str, Any], rows: int, values: Any) -> NDArray[Any]:
    return np.full((*kind["shape"], rows), values, kind["dtype"])


@dataclass(frozen=True, slots=True)
class Specs(Columns):
    """What is wished: the policy of each revision and what its PodAutoscaler says."""

    min: IntArray = field(metadata=default(0))
    max: IntArray = field(metadata=default(1))
    initial: IntArray = field(metadata=default(1))  # replicas that must be ready once
    activation: IntArray = field(metadata=default(1))  # replicas at least when it leaves zero
    target: FloatArray = field(metadata=default(1.0))  # slots of one replica
    utilization: FloatArray = field(metadata=default(1.0))  # share of them to use on average
    scale_to_zero_after: FloatArray = field(metadata=default(60.0))  # s, or AUTO
    scale_down_delay: FloatArray = field(metadata=default(0.0))  # s
    stable_window: FloatArray = field(metadata=default(60.0))  # s
    latency_objective: FloatArray = field(metadata=default(0.0))  # s in which answers are to be given; 0: none
    latency_quantile: FloatArray = field(metadata=default(0.95))  # share of the answers that are to be within it
    reachable: BoolArray = field(metadata=default(True))  # False: no route points to it
    initialized: BoolArray = field(metadata=default(True))  # the initial scale was reached once
    expired: BoolArray = field(metadata=default(False))  # it did not start within its progress deadline


@dataclass(frozen=True, slots=True)
class Observations(Columns):
    """What is seen of each revision."""

    current: IntArray = field(metadata=default(0))  # replicas asked for at present
    ready: IntArray = field(metadata=default(0))
    starting_seconds: FloatArray = field(metadata=default(0.0))  # ages of the starting replicas, added up
    stable: FloatArray = field(metadata=default(NAN))  # slots in use on average over the stable window
    panic: FloatArray = field(metadata=default(NAN))  # the same over the panic window
    unknown: FloatArray = field(metadata=default(0.0))  # slots that silent replicas may have held in the stable window
    age: FloatArray = field(metadata=default(NAN))  # s since the first reading
    covered: FloatArray = field(metadata=default(0.0))  # s of the stable window with readings
    queued: FloatArray = field(metadata=default(0.0))  # requests waiting at the activator now
    crowd: FloatArray = field(metadata=default(0.0))  # slots used or waited for inside replicas where requests wait
    active: FloatArray = field(metadata=default(0.0))  # requests passing through the activator now
    idle: FloatArray = field(metadata=default(NAN))  # s without any work, NaN while not all replicas are heard
    service_time: FloatArray = field(metadata=default(NAN))  # slot-seconds of one request, as measured
    start_time: FloatArray = field(metadata=default(NAN))  # s from asking for a replica to its readiness, as measured
    latency: FloatArray = field(metadata=default(NAN))  # s, the objective's quantile of the latest answers
    answers: FloatArray = field(metadata=default(0.0))  # answers behind `latency`
    adopted: BoolArray = field(metadata=default(False))  # found with replicas by a process that has just started


@dataclass(frozen=True, slots=True)
class State(Columns):
    """What the decider remembers."""

    panic_until: FloatArray = field(metadata=default(NEVER))
    panic_peak: IntArray = field(metadata=default(0))  # most replicas wanted during this panic
    below_since: FloatArray = field(metadata=default(NAN))  # since when less than the current count is enough
    below_peak: IntArray = field(metadata=default(0))  # most replicas wanted in that time
    at_rest: BoolArray = field(metadata=default(False))  # idle for long enough when it was last known
    starting_since: FloatArray = field(metadata=default(NAN))  # when the first was asked for, while none is ready
    slow_until: FloatArray = field(metadata=default(NEVER))  # until when slow answers call for no further replicas
    hold_width: FloatArray = field(metadata=default(NAN))  # s of a bucket of the peak-hold; NaN before its first
    hold_began: FloatArray = field(metadata=default(0.0))  # when its current bucket began
    hold_now: IntArray = field(metadata=default(0))  # most replicas wanted in the current bucket
    hold_before: IntArray = field(metadata=default(0))  # most replicas wanted in the buckets before
    hold_slot: IntArray = field(metadata=default(0))  # where the current bucket goes to in `peaks`
    peaks: NDArray[np.int32] = field(metadata={"default": 0, "dtype": np.int32, "shape": (PEAKS,)})
    """Most replicas wanted in each of the buckets before."""
