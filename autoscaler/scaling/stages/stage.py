"""The inputs and the result of a stage.

A stage is a pure function over all revisions at once. It receives the inputs and the number of replicas after the
previous stages. It returns the new number, the values that explain it, and the state columns to store.

Ticks must be cheap. Calculations that concern few revisions (a queue, a panic, an objective) run on these rows only, by
`StageInputs.among`, and explaining values are calculated on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from autoscaler.config import DecisionSettings
from autoscaler.scaling.table import BoolArray, Columns, DeciderState, FloatArray, IntArray, Observations, Specs

MOST = 1e9  # replicas: keeps faulty values within the range of an integer; the bounds apply later


@dataclass(frozen=True)
class StageInputs:
    """The inputs of every stage; `state` is that of the previous decision, `now` is in monotonic seconds."""

    specs: Specs
    seen: Observations
    state: DeciderState
    now: float
    settings: DecisionSettings
    known: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Results of functions decorated with `once`."""

    def among(self, rows: IntArray) -> StageInputs:
        """Return the inputs of these rows only. Columns are gathered on first use."""
        specs, seen, state = (_Gathered(table, rows) for table in (self.specs, self.seen, self.state))
        return StageInputs(
            cast(Specs, specs), cast(Observations, seen), cast(DeciderState, state), self.now, self.settings
        )

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.seen.current)

    @cached_property
    def per_replica(self) -> FloatArray:
        """Slots of average work per replica."""
        return self.specs.target * self.specs.utilization

    @cached_property
    def per_peak(self) -> FloatArray:
        """Slots of peak work per replica: a peak needs less reserve than an average."""
        return self.specs.target * np.maximum(self.specs.utilization, self.settings.peak_utilization)

    @cached_property
    def start_time(self) -> FloatArray:
        """Seconds from the request for a replica to its readiness: measured, else assumed."""
        measured = self.seen.start_time
        return where(measured > 0.0, np.minimum(measured, MOST), self.settings.assumed_start_time)

    @cached_property
    def is_waited_for(self) -> BoolArray:
        """Whether requests are queued at the activator."""
        return self.seen.queued > 0.0

    @cached_property
    def is_young(self) -> BoolArray:
        """Whether readings do not yet cover a whole stable window, or too many of them are missing."""
        window = self.specs.stable_window
        old = (self.seen.age >= window) & (self.seen.covered >= self.settings.enough_coverage * window)
        return ~old

    @cached_property
    def is_trusted(self) -> BoolArray:
        """Whether the panic window covers more than the first seconds of a process that found replicas."""
        return ~(self.seen.adopted & self.is_young)

    def replicas_for(self, work: FloatArray, per_replica: FloatArray | None = None) -> IntArray:
        """Return the replicas that hold `work` slots: ⌈work ÷ `per_replica` − tolerance⌉; 0 without data.

        This is Knative's rule with a tolerance. The default of `per_replica` is target × utilization.
        """
        needed = work / (self.per_replica if per_replica is None else per_replica)
        np.subtract(needed, self.settings.tolerance, out=needed)
        np.ceil(needed, out=needed)
        np.fmax(needed, 0.0, out=needed)  # NaN becomes 0
        whole: IntArray = np.minimum(needed, MOST, out=needed).astype(np.int64)
        return whole


@dataclass(frozen=True, slots=True)
class StageResult:
    """The replicas after the stage, a function that returns the explaining values, and state columns to store."""

    desired: IntArray
    values: Callable[[], Mapping[str, Any]] = dict
    state: Mapping[str, Any] = field(default_factory=dict)


Stage = Callable[[StageInputs, IntArray], StageResult]
T = TypeVar("T")


class _Gathered:
    """Some rows of a table; a column is copied on first use."""

    def __init__(self, table: Columns, rows: IntArray) -> None:
        self._table, self._rows = table, rows

    def __getattr__(self, name: str) -> Any:
        column = getattr(self._table, name)[..., self._rows]
        setattr(self, name, column)
        return column


def where(condition: BoolArray, then: NDArray[Any], otherwise: Any) -> NDArray[Any]:
    """Return `np.where`, without a copy when all rows are true: the result may be `then` itself and must not be
    modified.
    """
    return then if condition.all() else np.where(condition, then, otherwise)


def once(function: Callable[[StageInputs], T]) -> Callable[[StageInputs], T]:
    """Cache the result of a function of the inputs that several stages call."""

    @wraps(function)
    def answer(inputs: StageInputs) -> T:
        if function not in inputs.known:
            inputs.known[function] = function(inputs)
        known: T = inputs.known[function]
        return known

    return answer
