"""Removal of the last replica: a sequence of checks, each performed only after the previous one has passed.

    requests are queued or active at the activator       BUSY   the decision is void
    ServerlessService not in mode Proxy                  WAIT   (the reconciler has requested it)
    activator not proven in the path*                    WAIT   ActivatorEndpointsPopulated of this generation, a probe
    in the path for less than the grace                  WAIT   for the rest of it
    a replica has, or since its last reading had, work   BUSY   a request came by the old path
    a replica does not answer                            WAIT   check again
    an activator does not answer*                        WAIT   check again
    requests are queued or active at the activator now   BUSY
    else                                                 GO

    * skipped for a revision without a route

A revision whose GPUs are reclaimed goes to zero once the activator is in the path; its work is not checked.

Knative: `pkg/reconciler/autoscaling/kpa/scaler.go: handleScaleToZero`. From the third step on, the activator holds new
requests. Therefore no request that the activator does not know can reach a replica between the last check and the
scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from autoscaler.config import Zero
from autoscaler.metrics.collector import MetricCollector
from autoscaler.metrics.source import ActivatorLoad, NoSample
from autoscaler.reconciler.serverless_service import ServiceMode
from clusters.base.clock import Clock
from clusters.base.objects import Key, Object, is_true
from clusters.net.endpoints import Endpoint

IN_PATH = "ActivatorEndpointsPopulated"


class Prober(Protocol):
    """A proof, in addition to the status condition, that the activator receives a revision's requests."""

    async def in_path(self, key: Key, port: int) -> bool:
        """Return whether a probe of the revision's address, at that port of its Service, reached the activator."""
        ...


class ZeroVerdict(Enum):
    """The result of the checks."""

    GO = "scale to zero"
    WAIT = "not yet"
    BUSY = "there is work"


@dataclass(frozen=True, slots=True)
class ZeroCheck:
    """The verdict. For WAIT, the seconds until the next check, or None when a change of an object triggers it.

    `reason`: one word for an unusual wait, else empty.
    """

    verdict: ZeroVerdict
    after: float | None = None
    reason: str = ""


PROBE_FAILED = "ActivatorProbeFailed"
METRICS_UNAVAILABLE = "MetricsUnavailable"
PORTS = {"h2c": 81}
HTTP_PORT = 80
"""Of a revision's Service, by protocol (knative.dev/networking `ServicePort`)."""


class ScaleToZero:
    """Checks revisions; remembers since when the activator is in each one's path."""

    def __init__(
        self,
        collector: MetricCollector,
        activator: ActivatorLoad,
        clock: Clock,
        zero: Zero,
        prober: Prober | None = None,
    ) -> None:
        self._collector = collector
        self._activator = activator
        self._clock = clock
        self._zero = zero
        self._prober = prober
        self._in_path_since: dict[Key, float] = {}

    def forget(self, key: Key) -> None:
        """Delete a revision that does not go to zero."""
        self._in_path_since.pop(key, None)

    async def check(
        self,
        serverless_service: Object | None,
        key: Key,
        endpoints: Sequence[Endpoint],
        *,
        reachable: bool = True,
        reclaimed: bool = False,
    ) -> ZeroCheck:
        """Check whether the revision may go to zero; `endpoints` are its ready replicas.

        A revision that is not `reachable` (no route leads to it) receives no new requests, so the activator is not
        checked. One whose GPUs are `reclaimed` goes to zero with work: its replicas finish their requests when they
        are terminated, and new requests wait at the activator.
        """
        if self._is_loaded(key) and not reclaimed:
            return ZeroCheck(ZeroVerdict.BUSY)
        if not is_in_path(serverless_service):
            self.forget(key)
            return ZeroCheck(ZeroVerdict.WAIT)
        if key not in self._in_path_since:
            port = PORTS.get(((serverless_service or {}).get("spec") or {}).get("protocolType", ""), HTTP_PORT)
            if reachable and self._prober is not None and not await self._prober.in_path(key, port):
                return ZeroCheck(ZeroVerdict.WAIT, self._zero.recheck, PROBE_FAILED)
            self._in_path_since[key] = self._clock.monotonic()
        held_since = self._in_path_since[key] + self._zero.grace
        if (left := held_since - self._clock.monotonic()) > 0.0:
            return ZeroCheck(ZeroVerdict.WAIT, left)
        if reclaimed:
            return ZeroCheck(ZeroVerdict.GO)
        return await self._check_replicas(key, endpoints, held_since, reachable)

    async def _check_replicas(
        self, key: Key, endpoints: Sequence[Endpoint], held_since: float, reachable: bool
    ) -> ZeroCheck:
        """Check the replicas, then the activators, through which all requests pass by now."""
        try:
            quiet = await self._collector.is_quiet(key, endpoints, held_since)
        except NoSample:
            return ZeroCheck(ZeroVerdict.WAIT, self._zero.recheck, METRICS_UNAVAILABLE)
        if not quiet:
            return ZeroCheck(ZeroVerdict.BUSY)
        if reachable and not await self._activator.refresh():
            return ZeroCheck(ZeroVerdict.WAIT, self._zero.recheck, METRICS_UNAVAILABLE)
        return ZeroCheck(ZeroVerdict.BUSY if self._is_loaded(key) else ZeroVerdict.GO)

    def _is_loaded(self, key: Key) -> bool:
        load = self._activator.load(key)
        return load.queued > 0 or load.active > 0


def is_in_path(serverless_service: Object | None) -> bool:
    """Return whether the ServerlessService proves that the revision's requests reach the activator."""
    return (
        serverless_service is not None
        and serverless_service["spec"].get("mode") == ServiceMode.PROXY.value
        and is_true(serverless_service, IN_PATH)
    )
