"""The health of a running container: its probes, and what follows from them.

startup     until it succeeded nothing else is probed; too late: the container is ended (and so restarted)
readiness   decides whether the Pod gets requests
liveness    failing: the container is ended
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from clusters.base.objects import Object
from clusters.embedded.kubelet.node import HOST, Node
from clusters.embedded.kubelet.probes import Probe, Prober, Result, parse_probe
from clusters.embedded.kubelet.process.process import Process, first_of, terminate

DEFAULT_GRACE: Final = 30.0  # s; as Kubernetes: terminationGracePeriodSeconds


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a container's health."""

    started: bool = False
    ready: bool = False


class Health:
    """The health of one process of a Pod, from `known` on; `changed` is told of each change."""

    def __init__(
        self,
        node: Node,
        pod: Object,
        process: Process,
        ports: Mapping[str, int],
        known: Known,
        changed: Callable[[Known], None],
    ) -> None:
        self._node = node
        self._pod = pod
        self._process = process
        self._known = known
        self._changed = changed
        container = pod["spec"]["containers"][0]
        self._startup = parse_probe(container, "startupProbe", ports)
        self._readiness = parse_probe(container, "readinessProbe", ports)
        self._liveness = parse_probe(container, "livenessProbe", ports)

    async def follow(self) -> None:
        """Probe until cancelled, or until there is nothing to probe."""
        if self._startup is not None and not self._known.started:
            result = await self._prober(self._startup).first_success(self._startup.start_limit)
            if not result.ok:
                await self._end(self._startup, "Startup", result)
        self._know(ready=self._known.ready or self._readiness is None)
        following = [] if self._readiness is None else [self._follow_readiness(self._readiness)]
        following += [] if self._liveness is None else [self._follow_liveness(self._liveness)]
        if following:  # no task group: one that is cancelled keeps all that it knows, until cycles are collected
            await first_of(*following)

    async def _follow_readiness(self, probe: Probe) -> None:
        async def changed(result: Result) -> None:
            self._know(ready=result.ok)
            if not result.ok:
                message = f"Readiness probe failed: {result.message}"
                await self._node.record(self._pod, "Warning", "Unhealthy", message)

        if not self._known.ready:
            await self._prober(probe).first_success()
            self._know(ready=True)
            await self._node.clock.sleep(probe.period)
        await self._prober(probe).follow(True, changed)

    async def _follow_liveness(self, probe: Probe) -> None:
        async def changed(result: Result) -> None:
            if not result.ok:
                await self._end(probe, "Liveness", result)

        await self._node.clock.sleep(max(probe.initial_delay, probe.period))  # not while it still starts
        await self._prober(probe).follow(True, changed)

    async def _end(self, probe: Probe, kind: str, result: Result) -> None:
        message = f"{kind} probe failed: {result.message}; the container is ended"
        await self._node.record(self._pod, "Warning", "Unhealthy", message)
        await terminate(
            self._process, probe.grace if probe.grace is not None else grace_of(self._pod), self._node.clock
        )

    def _know(self, ready: bool) -> None:
        self._known = Known(started=True, ready=ready)
        self._changed(self._known)

    def _prober(self, probe: Probe) -> Prober:
        return Prober(HOST, probe, self._node.clock)


def grace_of(pod: Object) -> float:
    """Seconds between SIGTERM and SIGKILL: of the deletion, else of the spec."""
    asked = pod["metadata"].get("deletionGracePeriodSeconds")
    stated = pod["spec"].get("terminationGracePeriodSeconds") if asked is None else asked
    return DEFAULT_GRACE if stated is None else float(stated)
