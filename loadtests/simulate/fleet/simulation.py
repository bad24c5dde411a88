"""Simulation of a fleet of models on a virtual clock: the waits for starts, and the cost of all Pods.

A request to a warm model is served at once; only the first replica of a model is simulated. A request to a model at
zero waits for a start: a claim if a member of the pool is ready, else a cold start. Each claimed member is replaced at
once, and the new one is ready after a cold start. Every Pod is billed from its creation: starting, busy and idle
replicas, and starting and ready members.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from loadtests.simulate.fleet.arrivals import Arrivals, FloatArray


@dataclass(frozen=True, slots=True)
class FleetTimes:
    """Seconds of the service of a request, of a cold start (also of a new member), and of a claim with its load."""

    service: float = 2.0
    cold: float = 30.0
    claim: float = 3.0


class KeepAlivePolicy(Protocol):
    """The interface of a policy. The autoscaler makes the same calls."""

    interval: float
    """Seconds between two calls of `replan`."""

    def replan(self, now: float) -> int:
        """Return the size of the pool from now on."""
        ...

    def keep_alive(self, model: int) -> float:
        """Return the seconds for which the model stays warm after its last request."""
        ...

    def record_idle_time(self, model: int, idle: float, busy: float) -> None:
        """Record a request after `idle` seconds without requests. Before, the model was busy for `busy` seconds."""
        ...

    def record_work_end(self, model: int, until: float) -> None:
        """Record the end of the current work."""
        ...

    def record_first_request(self, model: int, now: float) -> None:
        """Record the first request."""
        ...

    def record_start_begin(self, now: float) -> None:
        """Record the begin of a start of any model."""
        ...

    def record_start(self, model: int, seconds: float, waited: float, *, claimed: bool) -> None:
        """Record a completed start. `waited`: total seconds that requests waited for it."""
        ...


@dataclass(frozen=True, slots=True)
class FleetOutcome:
    """The result of a run: the added wait of each request in seconds, and Pod-seconds of replicas and of pool
    members.
    """

    waits: FloatArray
    replicas: float
    members: float
    starts: int
    cold: int

    @property
    def bill(self) -> float:
        """Total Pod-seconds."""
        return self.replicas + self.members

    @property
    def mean_wait(self) -> float:
        """Average wait for a start in seconds, over all requests."""
        return float(self.waits.mean()) if len(self.waits) else 0.0

    def quantile(self, share: float) -> float:
        """Return the quantile of the waits in seconds; `share` is from 0 to 1."""
        return float(np.quantile(self.waits, share)) if len(self.waits) else 0.0


@dataclass(slots=True)
class _Model:
    warm: bool = False
    began: float = 0.0  # creation of the current replica
    ready: float = 0.0
    worked: float = 0.0  # begin of the current busy time
    idle_from: float = float("nan")  # end of the last request
    claimed: bool = False
    waited: float = 0.0  # total seconds that requests waited for the current start


@dataclass(slots=True)
class _Pool:
    """Members of the pool, by the time at which they become ready."""

    cold: float
    ready: list[float] = field(default_factory=list)
    size: int = 0
    billed: float = 0.0
    counted: float = 0.0

    def resize(self, size: int, now: float) -> None:
        self._count(now)
        self.size = size
        while len(self.ready) < size:
            heapq.heappush(self.ready, now + self.cold)
        while len(self.ready) > size:  # remove the members that become ready last
            self.ready.remove(max(self.ready))
            heapq.heapify(self.ready)

    def claim(self, now: float) -> bool:
        if not self.ready or self.ready[0] > now:
            return False
        self._count(now)
        heapq.heapreplace(self.ready, now + self.cold)
        return True

    def _count(self, now: float) -> None:
        self.billed += len(self.ready) * (now - self.counted)
        self.counted = now


class FleetSimulation:
    """One run of a policy over arrivals."""

    def __init__(self, arrivals: Arrivals, times: FleetTimes, policy: KeepAlivePolicy) -> None:
        self._arrivals = arrivals
        self._times = times
        self._policy = policy
        self._models = [_Model() for _ in range(int(arrivals.models.max(initial=-1)) + 1)]
        self._pool = _Pool(times.cold)
        self._planned = 0.0  # time of the last plan
        self._replicas = 0.0
        self._starts = self._cold = 0

    def run(self) -> FleetOutcome:
        """Run the simulation up to the horizon."""
        waits, following = [], 0.0
        for now, number in zip(self._arrivals.times.tolist(), self._arrivals.models.tolist(), strict=True):
            while following <= now:
                self._replan(following)
                following += self._policy.interval
            waits.append(self._request(number, now))
        while following < self._arrivals.horizon:
            self._replan(following)
            following += self._policy.interval
        end = self._arrivals.horizon
        for number, model in enumerate(self._models):
            self._scale_to_zero(number, model, end)
            if model.warm:
                self._replicas += max(0.0, end - model.began)
        self._pool.resize(0, end)
        return FleetOutcome(np.array(waits), self._replicas, self._pool.billed, self._starts, self._cold)

    def _replan(self, now: float) -> None:
        """Apply a new plan, also to idle models. Keep-alives that have ended already are billed by the former plan."""
        for number, model in enumerate(self._models):
            self._scale_to_zero(number, model, now)
        self._pool.resize(self._policy.replan(now), now)
        self._planned = now

    def _scale_to_zero(self, number: int, model: _Model, now: float) -> None:
        if not model.warm:
            return
        ends = max(model.idle_from + self._policy.keep_alive(number), self._planned)
        if ends < now:
            self._replicas += ends - model.began
            model.warm = False
            self._policy.record_start(number, model.ready - model.began, model.waited, claimed=model.claimed)

    def _request(self, number: int, now: float) -> float:
        model = self._models[number]
        self._scale_to_zero(number, model, now)
        if math.isnan(model.idle_from):
            self._policy.record_first_request(number, now)
        elif model.idle_from <= now:
            self._policy.record_idle_time(number, now - model.idle_from, model.idle_from - model.worked)
        if not model.idle_from > now:
            model.worked = now
        if not model.warm:
            self._start(model, now)
        wait = max(0.0, model.ready - now)
        model.waited += wait
        finished = now + wait + self._times.service
        model.idle_from = finished if math.isnan(model.idle_from) else max(model.idle_from, finished)
        self._policy.record_work_end(number, model.idle_from)
        return wait

    def _start(self, model: _Model, now: float) -> None:
        model.claimed = claimed = self._pool.claim(now)
        self._policy.record_start_begin(now)
        self._starts += 1
        self._cold += not claimed
        model.warm, model.began = True, now
        model.waited = 0.0
        model.ready = now + (self._times.claim if claimed else self._times.cold)
