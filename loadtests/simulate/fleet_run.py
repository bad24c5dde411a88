"""A fleet of models over virtual time: the waits for starts, and the cost of all Pods.

A request to a warm model is served at once; replicas beyond the first are not simulated. At a model at zero, it waits
for a start: a claim if a member of the pool is ready, else a cold start. Each claimed member is replaced at once, and
the new one takes a cold start's time. Every Pod is billed from its creation on: starting, busy or idle replicas, and
starting or waiting members.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from loadtests.simulate.fleet_arrivals import Arrivals, FloatArray


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of a request's service, of a cold start (and of a new member), and of a claim with its load."""

    service: float = 2.0
    cold: float = 30.0
    claim: float = 3.0


class KeepWarm(Protocol):
    """The interface of a policy, with the same calls as from the autoscaler."""

    look: float
    """Seconds between two calls of `replan`."""

    def replan(self, now: float) -> int:
        """Return the members that the pool must have from now on."""
        ...

    def hold(self, model: int) -> float:
        """Return the seconds for which the model is kept warm after its work."""
        ...

    def came(self, model: int, idle: float, busy: float) -> None:
        """Record a request after `idle` seconds without any, which followed work of `busy` seconds."""
        ...

    def worked(self, model: int, until: float) -> None:
        """Record that the present work ends at `until`."""
        ...

    def began(self, model: int, now: float) -> None:
        """Record the first request."""
        ...

    def begins(self, now: float) -> None:
        """Record that a start of some model begins."""
        ...

    def started(self, model: int, seconds: float, waited: float, *, claimed: bool) -> None:
        """Record a completed start, for which requests together waited for `waited` seconds."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run: the added wait of each request in seconds, and pod-seconds of replicas and of pool
    members.
    """

    waits: FloatArray
    replicas: float
    members: float
    starts: int
    cold: int

    @property
    def bill(self) -> float:
        """Pod-seconds of all Pods."""
        return self.replicas + self.members

    @property
    def mean_wait(self) -> float:
        """Average seconds that a request waited for a start, over all requests."""
        return float(self.waits.mean()) if len(self.waits) else 0.0

    def quantile(self, share: float) -> float:
        """Return the seconds that this share of the requests waited at most."""
        return float(np.quantile(self.waits, share)) if len(self.waits) else 0.0


@dataclass(slots=True)
class _Model:
    warm: bool = False
    began: float = 0.0  # start of its present replica
    ready: float = 0.0
    worked: float = 0.0  # since when it has worked without a pause
    idle_from: float = float("nan")  # end of its last request
    claimed: bool = False
    waited: float = 0.0  # seconds by all requests for its present start


@dataclass(slots=True)
class _Pool:
    """Members by the time at which they are ready."""

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
        while len(self.ready) > size:  # those that are ready latest go
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


class Fleet:
    """One run of a policy over arrivals."""

    def __init__(self, arrivals: Arrivals, times: Times, policy: KeepWarm) -> None:
        self._arrivals = arrivals
        self._times = times
        self._policy = policy
        self._models = [_Model() for _ in range(int(arrivals.models.max(initial=-1)) + 1)]
        self._pool = _Pool(times.cold)
        self._planned = 0.0  # time of the last plan; the former keep-alives applied until then
        self._replicas = 0.0
        self._starts = self._cold = 0

    def run(self) -> Outcome:
        """Run the simulation from the first second to the last."""
        waits, following = [], 0.0
        for now, number in zip(self._arrivals.times.tolist(), self._arrivals.models.tolist(), strict=True):
            while following <= now:
                self._replan(following)
                following += self._policy.look
            waits.append(self._request(number, now))
        while following < self._arrivals.horizon:
            self._replan(following)
            following += self._policy.look
        end = self._arrivals.horizon
        for number, model in enumerate(self._models):
            self._let_go(number, model, end)
            if model.warm:
                self._replicas += max(0.0, end - model.began)
        self._pool.resize(0, end)
        return Outcome(np.array(waits), self._replicas, self._pool.billed, self._starts, self._cold)

    def _replan(self, now: float) -> None:
        """Apply a new plan, also to idle models; models whose keep-alive has already ended are billed by the former
        plan.
        """
        for number, model in enumerate(self._models):
            self._let_go(number, model, now)
        self._pool.resize(self._policy.replan(now), now)
        self._planned = now

    def _let_go(self, number: int, model: _Model, now: float) -> None:
        if not model.warm:
            return
        gone = max(model.idle_from + self._policy.hold(number), self._planned)
        if gone < now:
            self._replicas += gone - model.began
            model.warm = False
            self._policy.started(number, model.ready - model.began, model.waited, claimed=model.claimed)

    def _request(self, number: int, now: float) -> float:
        model = self._models[number]
        self._let_go(number, model, now)
        if math.isnan(model.idle_from):
            self._policy.began(number, now)
        elif model.idle_from <= now:
            self._policy.came(number, now - model.idle_from, model.idle_from - model.worked)
        if not model.idle_from > now:
            model.worked = now
        if not model.warm:
            self._start(model, now)
        wait = max(0.0, model.ready - now)
        model.waited += wait
        finished = now + wait + self._times.service
        model.idle_from = finished if math.isnan(model.idle_from) else max(model.idle_from, finished)
        self._policy.worked(number, model.idle_from)
        return wait

    def _start(self, model: _Model, now: float) -> None:
        model.claimed = claimed = self._pool.claim(now)
        self._policy.begins(now)
        self._starts += 1
        self._cold += not claimed
        model.warm, model.began = True, now
        model.waited = 0.0
        model.ready = now + (self._times.claim if claimed else self._times.cold)
