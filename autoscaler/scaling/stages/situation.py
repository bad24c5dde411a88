"""What every stage gets and gives.

A stage is a pure function over all revisions at once: it gets the situation and the number of replicas that the stages
before it arrived at; it answers with the number after it, the numbers that explain it, and the columns of the state
that it keeps.

A tick is to cost little: what concerns few revisions (a queue, a panic, an objective) is calculated for them alone, by
`Situation.among`, and numbers that explain are calculated when somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from autoscaler.config import Scaling
from autoscaler.scaling.table import BoolArray, Columns, FloatArray, IntArray, Observations, Specs, State

MOST = 1e9  # replicas: keeps nonsense within what an integer holds; the bounds follow


@dataclass(frozen=True)
class Situation:
    """What every stage looks at; `state` is that of the decision before. `now` in monotonic seconds."""

    specs: Specs
    seen: Observations
    state: State
    now: float
    settings: Scaling
    known: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What was asked `once`."""

    def among(self, rows: IntArray) -> Situation:
        """The same, of these rows alone; a column is gathered when it is asked for."""
        specs, seen, state = (_Gathered(table, rows) for table in (self.specs, self.seen, self.state))
        return Situation(cast(Specs, specs), cast(Observations, seen), cast(State, state), self.now, self.settings)

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.seen.current)

    @cached_property
    def per_replica(self) -> FloatArray:
        """Slots of work that call for one replica."""
        return self.specs.target * self.specs.utilization

    @cached_property
    def per_peak(self) -> FloatArray:
        """Slots of a peak that call for one replica: a peak needs less to spare on top of it than an average."""
        return self.specs.target * np.maximum(self.specs.utilization, self.settings.peak_utilization)

    @cached_property
    def start_time(self) -> FloatArray:
        """Seconds from asking for a replica to its readiness: measured, else assumed."""
        measured = self.seen.start_time
        return where(measured > 0.0, np.minimum(measured, MOST), self.settings.assumed_start_time)

    @cached_property
    def is_waited_for(self) -> BoolArray:
        """Whether requests wait at the activator."""
        return self.seen.queued > 0.0

    @cached_property
    def is_young(self) -> BoolArray:
        """Whether there are not yet readings of a whole stable window, or too many of it are missing."""
        window = self.specs.stable_window
        old = (self.seen.age >= window) & (self.seen.covered >= self.settings.enough_coverage * window)
        return ~old

    @cached_property
    def is_trusted(self) -> BoolArray:
        """Whether the panic window speaks of more than the first seconds of a process that found replicas."""
        return ~(self.seen.adopted & self.is_young)

    def replicas_for(self, work: FloatArray, per_replica: FloatArray | None = None) -> IntArray:
        """Replicas that hold `work` slots: ⌈work ÷ `per_replica` − tolerance⌉; none without data.

        Knative's rule, with a tolerance; `per_replica` slots are target × utilization unless said otherwise.
        """
        needed = work / (self.per_replica if per_replica is None else per_replica)
        np.subtract(needed, self.settings.tolerance, out=needed)
        np.ceil(needed, out=needed)
        np.fmax(needed, 0.0, out=needed)  # NaN is no number of replicas
        whole: IntArray = np.minimum(needed, MOST, out=needed).astype(np.int64)
        return whole


@dataclass(frozen=True, slots=True)
class Outcome:
    """Replicas after the stage, what tells the numbers that explain them, and state columns to keep."""

    desired: IntArray
    values: Callable[[], Mapping[str, Any]] = dict
    state: Mapping[str, Any] = field(default_factory=dict)


Stage = Callable[[Situation, IntArray], Outcome]
T = TypeVar("T")


class _Gathered:
    """Some rows of a table; a column is copied when it is first asked for."""

    def __init__(self, table: Columns, rows: IntArray) -> None:
        self._table, self._rows = table, rows

    def __getattr__(self, name: str) -> Any:
        column = getattr(self._table, name)[..., self._rows]
        setattr(self, name, column)
        return column


def where(condition: BoolArray, then: NDArray[Any], otherwise: Any) -> NDArray[Any]:
    """As `np.where`, and for nothing where all rows are alike. May be `then` itself: not to be written to."""
    return then if condition.all() else np.where(condition, then, otherwise)


def once(question: Callable[[Situation], T]) -> Callable[[Situation], T]:
    """The same question, which several stages ask of one situation, and which is answered once."""

    @wraps(question)
    def answer(at: Situation) -> T:
        if question not in at.known:
            at.known[question] = question(at)
        known: T = at.known[question]
        return known

    return answer
