"""One run of replicas with engines under a scaling policy, on a virtual clock.

Requests wait at the activator until a replica has a free slot, then join the engine with the fewest requests. The first
`WARM_UP` seconds do not count: all policies begin without replicas.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from autoscaler.scaling.table import FloatArray
from loadtests.simulate.llm.engine import Engine, Request, Speed
from loadtests.simulate.llm.traffic import Traffic
from loadtests.simulate.llm.weights import Weigher
from loadtests.simulate.replicas import Replica
from loadtests.simulate.scaler import RevisionState, Scaler
from loadtests.simulate.simulation import Event, Simulation
from loadtests.simulate.workload import Workload

WARM_UP = 480.0
"""Seconds."""
LATE = 1.0
"""Seconds to the first token beyond which a request is late."""

Measure = Callable[[Engine], float]
"""Returns the slots in use of an engine."""


@dataclass(frozen=True, slots=True)
class LlmOutcome:
    """The result after the warm-up: seconds to the first token, of which `waits` at the activator, and the cost."""

    first_token: FloatArray
    waits: FloatArray
    replica_seconds: float

    @property
    def late(self) -> float:
        """Share of the requests whose first token takes more than `LATE` seconds."""
        return float(np.mean(self.first_token > LATE))

    @property
    def p95(self) -> float:
        """The 0.95 quantile of the seconds to the first token."""
        return float(np.quantile(self.first_token, 0.95))


class LlmSimulation(Simulation):
    """A simulation of one run. Without a weigher, each request weighs 1."""

    def __init__(
        self,
        traffic: Traffic,
        scaler: Scaler,
        measure: Measure,
        weigher: Weigher | None = None,
        *,
        slots: int,
        start: float,
        speed: Speed,
        seed: int = 1,
    ) -> None:
        service = np.zeros(len(traffic.arrivals))
        super().__init__(Workload(traffic.name, traffic.arrivals, service, slots, start, 0.2, seed), scaler)
        self._measure, self._weigher, self._speed = measure, weigher, speed
        self._requests = [
            Request(number, prompt, generated)
            for number, (prompt, generated) in enumerate(
                zip(traffic.prompt.tolist(), traffic.generated.tolist(), strict=True)
            )
        ]
        self._max_tokens: list[int] = traffic.max_tokens.tolist()
        self._arrivals: list[float] = traffic.arrivals.tolist()
        self._last = self._arrivals[-1]
        self._engines: dict[Replica, Engine] = {}
        self._used: dict[Replica, float] = {}
        self._before: dict[Replica, float] = {}  # slots in use at the last tick
        self._waited: list[Replica] = []  # in which requests waited then
        self._used_seconds = self._in_use = self._answered_weight = self._measured = 0.0

    def play(self) -> LlmOutcome:
        """Run the simulation. Raises UnansweredRequests when requests remain unanswered."""
        waits = self.run("a language model").waits
        arrivals = np.array(self._arrivals)
        counted = arrivals >= WARM_UP
        first = np.array([request.first for request in self._requests]) - arrivals
        return LlmOutcome(first[counted], waits[counted], self._measured)

    def _advance(self, at: float) -> None:
        self._used_seconds += (at - self._now) * self._in_use
        self._measured += max(0.0, min(at, self._last) - max(self._now, WARM_UP)) * self._replicas.billed
        super()._advance(at)

    def _request(self, number: int) -> None:
        request = self._requests[number]
        if self._weigher is not None:
            request.weight = self._weigher.weigh(request.prompt, self._max_tokens[number], request.generated)
        super()._request(number)

    def _serve(self) -> None:
        while self._queue and (replica := self._replicas.take()) is not None:
            number = self._queue.popleft()
            self._waits[number] = self._now - self._arrivals[number]
            engine = self._engines.get(replica)
            if engine is None:
                engine = self._engines[replica] = Engine(self._workload.slots, self._speed)
            end = engine.end
            engine.add(self._requests[number], self._now)
            self._follow(replica, engine, end)

    def _answer(self, replica: Replica) -> None:
        """End a segment of the replica's engine, unless an arrival ended it earlier."""
        engine = self._engines[replica]
        if engine.end != self._now:
            return
        found = engine.finish()
        for request in found.last:
            self._answered_weight += request.weight
            if self._weigher is not None:
                prefill, decode = request.first - request.admitted, self._now - request.first
                self._weigher.record(request.prompt, prefill, request.generated, decode)
            super()._answer(replica)
        self._follow(replica, engine, self._now)
        if not engine.active and replica.drains:
            del self._engines[replica]

    def _follow(self, replica: Replica, engine: Engine, former_end: float) -> None:
        """Schedule the end of the engine's segment and update the slots in use."""
        if engine.end != former_end and engine.active:
            self._add(engine.end, Event.ANSWER, replica)
        used = 0.0 if replica.drains else self._measure(engine)
        self._in_use += used - self._used.pop(replica, 0.0)
        if used:
            self._used[replica] = used

    def _scale(self, wanted: int) -> None:
        super()._scale(wanted)
        self._used = {replica: used for replica, used in self._used.items() if not replica.drains}
        self._in_use = sum(self._used.values())

    def _tick(self) -> None:
        super()._tick()
        self._before = dict(self._used)
        self._waited = [replica for replica in self._used if self._engines[replica].waiting]

    def _state(self) -> RevisionState:
        return replace(
            super()._state(),
            queued=sum(self._requests[number].weight for number in self._queue),
            busy_seconds=self._used_seconds,
            answered=self._answered_weight,
            crowd=self._crowd(),
        )

    def _crowd(self) -> float:
        """Return the slots used now and at the last tick, if requests waited in one engine at both."""
        if not any(replica in self._used and self._engines[replica].waiting for replica in self._waited):
            return 0.0
        return sum(min(used, self._before.get(replica, 0.0)) for replica, used in self._used.items())
