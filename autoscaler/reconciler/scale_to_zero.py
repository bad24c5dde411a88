"""The last replica goes: a path of steps, each taken only when the one before is proven.

    requests wait or pass at the activator           BUSY       the decision is void
    ServerlessService not in mode Proxy              WAIT       (the reconciler has asked for it)
    activator not proven in the path                 WAIT       ActivatorEndpointsPopulated, of this generation
    in the path for less than the grace              WAIT       for the rest of it
    no replica is ready                              GO
    a replica has, or since its last reading had, work  BUSY    a request came by the old path
    a replica does not say                           WAIT       ask again
    else                                             GO

Knative: `pkg/reconciler/autoscaling/kpa/scaler.go: handleScaleToZero`. New requests are held by the activator from the
third step on, so between the last look and the scale nothing new can reach a replica that the activator does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from autoscaler.config import Zero
from autoscaler.metrics.collector import Collector
from autoscaler.metrics.source import ActivatorLoad, NoSample
from autoscaler.reconciler.serverless_service import Mode
from clusters.clock import Clock
from clusters.endpoints import Endpoint
from clusters.objects import Key, Object, is_true

IN_PATH = "ActivatorEndpointsPopulated"


class Prober(Protocol):
    """A proof beyond the condition that the activator answers for a revision."""

    async def in_path(self, key: Key) -> bool:
        """Whether a probe by the revision's address reached the activator."""
        ...


class Verdict(Enum):
    """What the path says now."""

    GO = "scale to zero"
    WAIT = "not yet"
    BUSY = "there is work"


@dataclass(frozen=True, slots=True)
class Look:
    """The verdict; for WAIT the seconds until the next look, or None when a change of an object brings it."""

    verdict: Verdict
    after: float | None = None


class ScaleToZero:
    """Walks revisions along the path; remembers since when the activator is in each one's path."""

    def __init__(
        self, collector: Collector, activator: ActivatorLoad, clock: Clock, zero: Zero, prober: Prober | None = None
    ) -> None:
        self._collector = collector
        self._activator = activator
        self._clock = clock
        self._zero = zero
        self._prober = prober
        self._in_path_since: dict[Key, float] = {}

    def forget(self, key: Key) -> None:
        """The revision is not on its way to zero."""
        self._in_path_since.pop(key, None)

    async def look(self, serverless_service: Object | None, key: Key, endpoints: Sequence[Endpoint]) -> Look:
        """Where the revision stands; `endpoints` are its ready replicas."""
        if self._is_loaded(key):
            return Look(Verdict.BUSY)
        if not is_in_path(serverless_service):
            self.forget(key)
            return Look(Verdict.WAIT)
        if (rest := await self._rest_of_grace(key)) > 0.0:
            return Look(Verdict.WAIT, rest)
        return await self._ask(key, endpoints)

    async def _rest_of_grace(self, key: Key) -> float:
        """Seconds; the grace begins when the activator is first seen (by the prober too, if any) in the path."""
        if key not in self._in_path_since:
            if self._prober is not None and not await self._prober.in_path(key):
                return self._zero.recheck
            self._in_path_since[key] = self._clock.monotonic()
        return self._in_path_since[key] + self._zero.grace - self._clock.monotonic()

    async def _ask(self, key: Key, endpoints: Sequence[Endpoint]) -> Look:
        try:
            quiet = await self._collector.is_quiet(key, endpoints)
        except NoSample:
            return Look(Verdict.WAIT, self._zero.recheck)
        return Look(Verdict.GO if quiet and not self._is_loaded(key) else Verdict.BUSY)

    def _is_loaded(self, key: Key) -> bool:
        load = self._activator.load(key)
        return load.queued > 0 or load.active > 0


def is_in_path(serverless_service: Object | None) -> bool:
    """Whether the activator is proven to be where the revision's requests go."""
    return (
        serverless_service is not None
        and serverless_service["spec"].get("mode") == Mode.PROXY.value
        and is_true(serverless_service, IN_PATH)
    )
