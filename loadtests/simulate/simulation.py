"""One run of a workload under a scaling policy, on a virtual clock.

Requests wait in one FIFO queue, as at an activator that is always in the path; a replica processes as many as it has
slots. The number of replicas is unlimited. Starting replicas are billed, busy ones are never stopped. Of events at the
same time, responses come first, then replicas that become ready, requests, and ticks.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from enum import IntEnum
from itertools import count
from typing import Any

import numpy as np

from clusters.base.errors import KnodelError
from loadtests.simulate.outcome import Outcome, Timeline
from loadtests.simulate.replicas import Replica, Replicas, Starts
from loadtests.simulate.scaler import RevisionState, Scaler
from loadtests.simulate.workload import Workload

LONGEST_WAIT = 86_400.0
"""Maximum seconds from the last request to the last response."""
LONGEST_AFTER = 3_600.0
"""Maximum seconds after the last response for which remaining replicas are billed."""


class UnansweredRequests(KnodelError):
    """Raised when a policy leaves requests unanswered."""


class Event(IntEnum):
    ANSWER = 0
    READY = 1
    REQUEST = 2
    TICK = 3


class Simulation:
    """A simulation of one run."""

    def __init__(self, workload: Workload, scaler: Scaler, starts: Starts | None = None) -> None:
        self._workload = workload
        self._scaler = scaler
        self._starts = starts or Starts(workload)
        self._replicas = Replicas(workload.slots)
        self._queue: deque[int] = deque()
        self._events: list[tuple[float, int, int, Any]] = []
        self._order = count()
        self._service: list[float] = workload.service.tolist()
        self._waits = [math.nan] * len(self._service)
        self._now = self._busy = self._held = self._paid = 0.0
        self._answered = self._started = 0
        self._tick_scheduled = False
        self._timeline = Timeline()

    def run(self, policy: str) -> Outcome:
        """Run the simulation. Raises UnansweredRequests when requests remain unanswered."""
        for number, at in enumerate(self._workload.arrivals.tolist()):
            self._add(at, Event.REQUEST, number)
        self._scaler.record_start(self._starts.initial)  # a revision is Ready only after a first start
        self._scale(self._scaler.decide_at_tick(self._state()))
        last = self._now + float(self._workload.arrivals[-1]) + LONGEST_WAIT
        while self._answered < len(self._service):
            if not self._events or self._now > last:
                waiting = len(self._service) - self._answered
                raise UnansweredRequests(
                    f"{policy}: {waiting} requests of {self._workload.name} are not answered after {self._now:.0f} s"
                )
            self._step()
        paid, end = self._paid, self._now
        while self._replicas.billed and self._events and self._now < end + LONGEST_AFTER:
            self._step()
        return Outcome(
            policy,
            np.array(self._waits),
            paid,
            self._paid - paid,
            self._starts.pool * end,
            self._started,
            self._timeline,
        )

    def _step(self) -> None:
        at, event, _, subject = heapq.heappop(self._events)
        self._advance(at)
        if event == Event.ANSWER:
            self._answer(subject)
        elif event == Event.READY:
            self._ready(subject)
        elif event == Event.REQUEST:
            self._request(subject)
        else:
            self._tick()
        self._timeline.record(at, self._replicas.billed, len(self._queue))

    def _advance(self, at: float) -> None:
        elapsed, replicas = at - self._now, self._replicas
        self._busy += elapsed * replicas.serving
        self._held += elapsed * (replicas.serving + replicas.draining + len(self._queue))
        self._paid += elapsed * replicas.billed
        self._now = at

    def _request(self, number: int) -> None:
        self._queue.append(number)
        self._serve()
        if len(self._queue) == 1:
            self._scale(self._scaler.decide_on_queue_change(self._state()))
        self._schedule_tick()

    def _answer(self, replica: Replica) -> None:
        self._answered += 1
        self._replicas.answered(replica)
        self._drain_queue()

    def _ready(self, replica: Replica) -> None:
        if not self._replicas.is_awaited(replica):
            return
        self._replicas.become_ready(replica)
        if replica.start.cold:
            self._scaler.record_start(self._now - replica.asked_at)
        self._scaler.observe_replicas(self._state())
        self._drain_queue()

    def _drain_queue(self) -> None:
        before = len(self._queue)
        self._serve()
        if before and not self._queue:
            self._scale(self._scaler.decide_on_queue_change(self._state()))

    def _tick(self) -> None:
        self._tick_scheduled = False
        self._scale(self._scaler.decide_at_tick(self._state()))
        self._schedule_tick()

    def _schedule_tick(self) -> None:
        """Schedule the next tick while there are replicas or requests."""
        if self._tick_scheduled or not (self._replicas.current or self._queue):
            return
        tick = self._scaler.tick
        self._tick_scheduled = True
        self._add((math.floor(self._now / tick + 1e-9) + 1) * tick, Event.TICK, None)

    def _serve(self) -> None:
        while self._queue and (replica := self._replicas.take()) is not None:
            number = self._queue.popleft()
            self._waits[number] = self._now - float(self._workload.arrivals[number])
            self._add(self._now + self._service[number], Event.ANSWER, replica)

    def _scale(self, wanted: int) -> None:
        current = self._replicas.current
        if wanted == current:
            return
        for _ in range(wanted - current):
            replica = Replica(self._now, self._starts.take(self._now))
            self._replicas.begin(replica)
            self._add(self._now + replica.start.seconds, Event.READY, replica)
            self._started += 1
        self._replicas.remove(current - wanted)
        self._scaler.observe_replicas(self._state())
        self._schedule_tick()

    def _state(self) -> RevisionState:
        replicas = self._replicas
        return RevisionState(
            now=self._now,
            current=replicas.current,
            ready=replicas.ready,
            queued=len(self._queue),
            in_flight=replicas.serving + replicas.draining,
            busy_seconds=self._busy,
            held_seconds=self._held,
            answered=self._answered,
        )

    def _add(self, at: float, event: Event, subject: Any) -> None:
        heapq.heappush(self._events, (at, int(event), next(self._order), subject))
