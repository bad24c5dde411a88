"""The last replica goes: a path of steps, each taken only when the one before is proven.

    requests wait or pass at the activator               BUSY   the decision is void
    ServerlessService not in mode Proxy                  WAIT   (the reconciler has asked for it)
    activator not proven in the path*                    WAIT   ActivatorEndpointsPopulated of this generation, a probe
    in the path for less than the grace                  WAIT   for the rest of it
    a replica has, or since its last reading had, work   BUSY   a request came by the old path
    a replica does not say                               WAIT   ask again
    an activator does not say now what it holds*         WAIT   ask again
    requests wait or pass at the activator by now        BUSY
    else                                                 GO

    * not asked about a revision that no route leads to

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
from clusters.base.clock import Clock
from clusters.base.objects import Key, Object, is_true
from clusters.net.endpoints import Endpoint

IN_PATH = "ActivatorEndpointsPopulated"


class Prober(Protocol):
    """A proof beyond the condition that the activator answers for a revision."""

    async def in_path(self, key: Key, port: int) -> bool:
        """Whether a probe by the revision's address, at that port of its Service, reached the activator."""
        ...


class Verdict(Enum):
    """What the path says now."""

    GO = "scale to zero"
    WAIT = "not yet"
    BUSY = "there is work"


@dataclass(frozen=True, slots=True)
class Look:
    """The verdict; for WAIT the seconds until the next look, or None when a change of an object brings it.

    `reason`: one word for what is waited for, empty where that is the usual course of things.
    """

    verdict: Verdict
    after: float | None = None
    reason: str = ""


PROBE_FAILED = "ActivatorProbeFailed"
METRICS_UNAVAILABLE = "MetricsUnavailable"
PORTS = {"h2c": 81}
HTTP_PORT = 80
"""Of a revision's Service, by protocol (knative.dev/networking `ServicePort`)."""


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

    async def look(
        self, serverless_service: Object | None, key: Key, endpoints: Sequence[Endpoint], *, reachable: bool = True
    ) -> Look:
        """Where the revision stands; `endpoints` are its ready replicas.

        One that is not `reachable` (no route leads to it) gets no new requests, so that nobody has to hear of them.
        """
        if self._is_loaded(key):
            return Look(Verdict.BUSY)
        if not is_in_path(serverless_service):
            self.forget(key)
            return Look(Verdict.WAIT)
        if key not in self._in_path_since:
            if reachable and not await self._is_proven(key, serverless_service):
                return Look(Verdict.WAIT, self._zero.recheck, PROBE_FAILED)
            self._in_path_since[key] = self._clock.monotonic()
        held_since = self._in_path_since[key] + self._zero.grace
        if (rest := held_since - self._clock.monotonic()) > 0.0:
            return Look(Verdict.WAIT, rest)
        return await self._ask(key, endpoints, held_since, reachable)

    async def _is_proven(self, key: Key, serverless_service: Object | None) -> bool:
        return self._prober is None or await self._prober.in_path(key, _port(serverless_service))

    async def _ask(self, key: Key, endpoints: Sequence[Endpoint], held_since: float, reachable: bool) -> Look:
        """The last look: at the replicas, then at the activators, through which all goes by now."""
        try:
            quiet = await self._collector.is_quiet(key, endpoints, held_since)
        except NoSample:
            return Look(Verdict.WAIT, self._zero.recheck, METRICS_UNAVAILABLE)
        if not quiet:
            return Look(Verdict.BUSY)
        if reachable and not await self._activator.refresh():
            return Look(Verdict.WAIT, self._zero.recheck, METRICS_UNAVAILABLE)
        return Look(Verdict.BUSY if self._is_loaded(key) else Verdict.GO)

    def _is_loaded(self, key: Key) -> bool:
        load = self._activator.load(key)
        return load.queued > 0 or load.active > 0


def _port(serverless_service: Object | None) -> int:
    return PORTS.get(((serverless_service or {}).get("spec") or {}).get("protocolType", ""), HTTP_PORT)


def is_in_path(serverless_service: Object | None) -> bool:
    """Whether the activator is proven to be where the revision's requests go."""
    return (
        serverless_service is not None
        and serverless_service["spec"].get("mode") == Mode.PROXY.value
        and is_true(serverless_service, IN_PATH)
    )
