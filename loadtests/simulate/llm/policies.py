"""The policies of the comparison. All but the oracle use Knodel's decider; they differ in the slots of a request."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from autoscaler.scaling.table import FloatArray
from loadtests.simulate.knodel import Knodel
from loadtests.simulate.llm.engine import Engine, Speed
from loadtests.simulate.llm.simulation import LlmOutcome, LlmSimulation, Measure
from loadtests.simulate.llm.traffic import Traffic
from loadtests.simulate.llm.weights import Weigher
from loadtests.simulate.scaler import RevisionState

BATCH = 8
"""Running requests of which the oracle assumes that they share the fixed part of a step."""
GOAL = 0.7
"""Share of `scaleTarget` slots that a replica uses on average, as in a Model's default."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The replicas: `slots` requests each, ready after `start` seconds, with engines of this speed."""

    slots: int = 64
    start: float = 30.0
    speed: Speed = field(default_factory=Speed)
    seed: int = 1


def active(engine: Engine) -> float:
    """Return the requests of the engine."""
    return float(engine.active)


def slots_in_use(engine: Engine) -> float:
    """Return the requests, or the used share of the KV cache × slots if that is more, as the model server does."""
    return float(max(engine.active, math.ceil(engine.kv_share * engine.slots) if engine.active else 0))


def weight(engine: Engine) -> float:
    """Return the sum of the weights of its requests."""
    return engine.weight


class Foresight:
    """A policy that knows all requests and their tokens: it orders each replica one start time before it is needed.

    A replica is needed for `target` seconds of an engine's work per second. It stays if it is needed again within a
    start time.
    """

    tick = 1.0

    def __init__(self, traffic: Traffic, setting: Setting, target: float) -> None:
        needed = np.ceil(engine_seconds(traffic, setting.speed) / target).astype(int)
        ahead = math.ceil(setting.start * 1.5) + 1
        padded = np.concatenate([needed, np.zeros(ahead, dtype=int)])
        self._plan: list[int] = np.lib.stride_tricks.sliding_window_view(padded, ahead).max(axis=1).tolist()

    def decide_at_tick(self, state: RevisionState) -> int:
        """Return the replicas of the plan, at least one."""
        return max(1, self._plan[min(int(state.now), len(self._plan) - 1)])

    def decide_on_queue_change(self, state: RevisionState) -> int:
        """Return the same."""
        return self.decide_at_tick(state)

    def observe_replicas(self, state: RevisionState) -> None:
        """Ignore the event: the plan is complete."""

    def record_start(self, seconds: float) -> None:
        """Ignore the event."""


def engine_seconds(traffic: Traffic, speed: Speed) -> FloatArray:
    """Return the seconds of one engine's work that arrive in each second, decoding spread over its duration.

    A request shares the fixed part of each step with `BATCH` others.
    """
    cached = traffic.prompt + traffic.generated / 2
    token = speed.step / BATCH + speed.per_request + speed.per_cached * cached
    lasts = traffic.generated * (speed.step + BATCH * (speed.per_request + speed.per_cached * cached))
    begin = traffic.arrivals.astype(int)
    spread = np.maximum(1, np.ceil(lasts)).astype(int)
    rate = traffic.generated * token / spread
    changes = np.zeros(int((begin + spread).max()) + 2)
    np.add.at(changes, begin, rate)
    np.add.at(changes, begin + spread, -rate)
    work = np.cumsum(changes)
    np.add.at(work, begin, traffic.prompt * speed.per_prompt)
    return work


def _knodel(measure: Measure, weigher: Callable[[], Weigher] | None = None) -> Policy:
    def play(traffic: Traffic, setting: Setting, target: float) -> LlmOutcome:
        scaler = Knodel(setting.slots, {"scaleTarget": target, "targetUtilization": GOAL})
        return _simulation(traffic, setting, scaler, measure, weigher() if weigher else None).play()

    return play


def _oracle(traffic: Traffic, setting: Setting, target: float) -> LlmOutcome:
    return _simulation(traffic, setting, Foresight(traffic, setting, target), active).play()


def _simulation(
    traffic: Traffic,
    setting: Setting,
    scaler: Knodel | Foresight,
    measure: Measure,
    weigher: Weigher | None = None,
) -> LlmSimulation:
    return LlmSimulation(
        traffic, scaler, measure, weigher,
        slots=setting.slots, start=setting.start, speed=setting.speed, seed=setting.seed,
    )  # fmt: skip


Policy = Callable[[Traffic, Setting, float], LlmOutcome]
"""Runs traffic; the number is the target of one replica: slots, or engine seconds per second of the oracle."""

POLICIES: Mapping[str, Policy] = {
    "requests": _knodel(active),
    "slots": _knodel(slots_in_use),
    "tokens": _knodel(weight, Weigher),
    "tokens, answers known": _knodel(weight, lambda: Weigher(knows_answers=True)),
    "oracle": _oracle,
}
TARGETS = (16.0, 32.0, 64.0)
"""Values of `scaleTarget`."""
ORACLE_TARGETS = (0.9, 1.4, 2.2, 3.2)
"""Engine seconds per second of a replica."""


def targets_of(policy: str, chosen: Sequence[float] | None = None) -> Sequence[float]:
    """Return the targets with which a policy is run. `chosen` ones replace those of Knodel's decider."""
    return ORACLE_TARGETS if policy == "oracle" else chosen or TARGETS
