"""What every stage gets and gives.

A stage is a pure function over all revisions at once: it gets the situation and the number of replicas that the stages
before it arrived at; it answers with the number after it, the numbers that explain it, and the columns of the state
that it keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, TypeVar

import numpy as np

from autoscaler.config import Scaling
from autoscaler.scaling.table import BoolArray, FloatArray, IntArray, Observations, Specs, State

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

    @cached_property
    def per_replica(self) -> FloatArray:
        """Slots of work that call for one replica."""
        return self.specs.per_replica

    @cached_property
    def per_peak(self) -> FloatArray:
        """Slots of a peak that call for one replica: a peak needs less to spare on top of it than an average."""
        return self.specs.target * np.maximum(self.specs.utilization, self.settings.peak_utilization)

    @cached_property
    def start_time(self) -> FloatArray:
        """Seconds from asking for a replica to its readiness: measured, else assumed."""
        measured = self.seen.start_time
        return np.where(measured > 0.0, np.minimum(measured, MOST), self.settings.assumed_start_time)

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
        needed = np.ceil(work / (self.per_replica if per_replica is None else per_replica) - self.settings.tolerance)
        known = np.minimum(np.where(needed > 0.0, needed, 0.0), MOST)  # NaN is no number of replicas
        whole: IntArray = known.astype(np.int64)
        return whole


@dataclass(frozen=True, slots=True)
class Outcome:
    """Replicas after the stage, the numbers that explain them, and state columns to keep."""

    desired: IntArray
    values: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)


Stage = Callable[[Situation, IntArray], Outcome]
T = TypeVar("T")


def once(question: Callable[[Situation], T]) -> Callable[[Situation], T]:
    """The same question, which several stages ask of one situation, and which is answered once."""

    @wraps(question)
    def answer(at: Situation) -> T:
        if question not in at.known:
            at.known[question] = question(at)
        known: T = at.known[question]
        return known

    return answer
