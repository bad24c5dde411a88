"""The decision: how many replicas each revision should have, and why. Pure, over all revisions at once.

Semantics, pinned by `tests/autoscaler/reference.py`, the same in plain Python:
1. Every revision starts from its current count; each stage of `STAGES` in turn may change the number.
2. A stage sees the state of the decision before, never what another stage keeps now.
3. The reasons of a revision are the stages that changed its number.
4. The result is an integer from 0 to `max`, and from `min` where the revision is reachable and did not expire.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscaler.config import Scaling
from autoscaler.scaling.reasons import Reason, Rule
from autoscaler.scaling.stages import demand, latency, limits, peak_hold, queue, zero
from autoscaler.scaling.stages.situation import Situation, Stage
from autoscaler.scaling.table import IntArray, Observations, Specs, State

STAGES: tuple[tuple[Rule, Stage], ...] = (
    (Rule.STABLE, demand.stable),  # what the average of the last minute calls for
    (Rule.WAITING, queue.waiting),  # what waits is counted now, not on average
    (Rule.CROWDED, queue.crowded),  # nor what waits inside replicas
    (Rule.PANIC, demand.panic),  # a burst is met at once and held
    (Rule.SLOW, latency.slow_answers),  # answers that come too late call for more where more helps
    (Rule.HOLD, peak_hold.peak_hold),  # what was needed lately stays as long as its start makes it worth while
    (Rule.STARTING, queue.keep_while_waiting),  # what starts is not taken back while requests wait
    (Rule.NO_DATA, limits.hold_without_data),  # no data is neither zero nor failure
    (Rule.RATE, limits.rate_limits),  # a wrong reading moves the count by a bounded step
    (Rule.ACTIVATION, limits.activation_scale),  # leaving zero
    (Rule.DELAY, limits.scale_down_delay),  # replicas go slowly where the policy says so
    (Rule.IN_USE, zero.keep_one),  # averages below one replica do not mean zero
    (Rule.IDLE, zero.idle),  # nothing at all for long enough does
    (Rule.BOUNDS, limits.bounds),  # whatever was found, the policy's bounds hold
    (Rule.EXPIRED, limits.give_up),  # except for what cannot start
)


@dataclass(frozen=True)
class _Step:
    rule: Rule
    before: IntArray
    after: IntArray
    values: Callable[[], Mapping[str, Any]]

    def reason(self, row: int) -> Reason | None:
        before, after = int(self.before[row]), int(self.after[row])
        if before == after:
            return None
        return Reason(self.rule, before, after, {name: float(value[row]) for name, value in self._columns.items()})

    @cached_property
    def _columns(self) -> Mapping[str, NDArray[Any]]:
        return {name: np.broadcast_to(value, self.after.shape) for name, value in self.values().items()}


@dataclass(frozen=True, slots=True)
class Decisions:
    """Replicas for each row; the reasons are made when asked for, from the tables as they are then."""

    desired: IntArray
    steps: tuple[_Step, ...]

    def reasons(self, row: int) -> tuple[Reason, ...]:
        """The stages that changed the number of this row, in order."""
        return tuple(reason for step in self.steps if (reason := step.reason(row)) is not None)


def decide(
    specs: Specs, observations: Observations, state: State, now: float, settings: Scaling | None = None
) -> tuple[Decisions, State]:
    """Decide for every row; `now` in monotonic seconds. Returns the decisions and the state for the next call."""
    at = Situation(specs, observations, state, now, settings or Scaling())
    desired = observations.current
    steps = []
    kept: dict[str, Any] = {}
    for rule, stage in STAGES:
        outcome = stage(at, desired)
        steps.append(_Step(rule, desired, outcome.desired, outcome.values))
        desired = outcome.desired
        kept.update(outcome.state)
    return Decisions(desired, tuple(steps)), dataclasses.replace(state, **kept)
