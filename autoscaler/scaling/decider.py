"""The scaling decision: the number of replicas of each revision, and its reasons. Pure, over all revisions at once.

Semantics, fixed by `tests/autoscaler/reference.py`, which implements the same in plain Python:
1. Every revision starts from its current count; each stage of `STAGES` in turn may change the number.
2. A stage reads the state of the previous decision, never the state that another stage stores in this one.
3. The reasons of a revision are the stages that changed its number.
4. The result is an integer from 0 to `max`, and from `min` if the revision is reachable, has GPUs and has not expired.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscaler.config import DecisionSettings
from autoscaler.scaling.reasons import Reason, Rule
from autoscaler.scaling.stages import demand, latency, limits, peak_hold, queue, zero
from autoscaler.scaling.stages.stage import Stage, StageInputs
from autoscaler.scaling.table import DeciderState, FloatArray, IntArray, Observations, Specs

STAGES: tuple[tuple[Rule, Stage], ...] = (
    (Rule.STABLE, demand.stable),  # average demand of the last minute
    (Rule.WAITING, queue.waiting),  # requests queued at the activator count at once, not on average
    (Rule.CROWDED, queue.crowded),  # and so do requests queued inside replicas
    (Rule.PANIC, demand.panic),  # a burst takes effect at once and is held
    (Rule.SLOW, latency.slow_answers),  # a missed latency objective adds replicas if they are busy
    (Rule.HOLD, peak_hold.peak_hold),  # recent peak demand is held for a multiple of the start time
    (Rule.STARTING, queue.keep_while_waiting),  # starting replicas stay while requests are queued
    (Rule.NO_DATA, limits.hold_without_data),  # missing data means neither zero load nor failure
    (Rule.RATE, limits.rate_limits),  # a faulty reading changes the count by a bounded step
    (Rule.ACTIVATION, limits.activation_scale),  # minimum when leaving zero
    (Rule.DELAY, limits.scale_down_delay),  # the policy's delay of scale-down
    (Rule.IN_USE, zero.keep_one),  # averages below one replica do not mean zero
    (Rule.IDLE, zero.idle),  # a long enough time without any work does
    (Rule.BOUNDS, limits.bounds),  # the policy's bounds apply to every result
    (Rule.GPU, limits.gpus),  # GPUs that others hold cannot be used
    (Rule.EXPIRED, limits.give_up),  # except for revisions that fail to start
)


@dataclass(frozen=True)
class _Step:
    rule: Rule
    before: IntArray
    after: IntArray
    values: Callable[[], Mapping[str, Any]]

    def reason(self, row: int, note: str) -> Reason | None:
        before, after = int(self.before[row]), int(self.after[row])
        if before == after:
            return None
        values = {name: float(column[row]) for name, column in self._columns.items()}
        return Reason(self.rule, before, after, values, note)

    @cached_property
    def _columns(self) -> Mapping[str, NDArray[Any]]:
        return {name: np.broadcast_to(value, self.after.shape) for name, value in self.values().items()}


@dataclass(frozen=True, slots=True)
class Decisions:
    """The desired replicas of each row. Reasons are created on demand, from the tables in their state at that time."""

    desired: IntArray
    steps: tuple[_Step, ...]

    def reasons(self, row: int, notes: Mapping[str, str] = MappingProxyType({})) -> tuple[Reason, ...]:
        """Return the stages that changed the number of this row, in order, with these notes by rule."""
        found = (step.reason(row, notes.get(step.rule, "")) for step in self.steps)
        return tuple(reason for reason in found if reason is not None)


def decide(
    specs: Specs, observations: Observations, state: DeciderState, now: float, settings: DecisionSettings | None = None
) -> tuple[Decisions, DeciderState]:
    """Decide for every row at `now` (monotonic seconds). Returns the decisions and the state for the next call."""
    inputs = StageInputs(specs, observations, state, now, settings or DecisionSettings())
    desired = observations.current
    steps = []
    kept: dict[str, Any] = {}
    for rule, stage in STAGES:
        result = stage(inputs, desired)
        steps.append(_Step(rule, desired, result.desired, result.values))
        desired = result.desired
        kept.update(result.state)
    return Decisions(desired, tuple(steps)), dataclasses.replace(state, **kept)


def panic_window(stable: FloatArray, settings: DecisionSettings) -> FloatArray:
    """Return the seconds over which `Observations.panic` is averaged, for stable windows of `stable` seconds."""
    return np.minimum(np.maximum(stable * settings.panic_window_share, settings.least_panic_window), stable)
