"""Run the probes of a container and apply their results.

startup     The other probes begin after its success. On failure the container is terminated.
readiness   Its result is the readiness of the Pod.
liveness    On failure the container is terminated.

The restart policy determines whether a terminated container is restarted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from clusters.base.objects import Object
from clusters.embedded.kubelet.container_config import grace_period
from clusters.embedded.kubelet.node import HOST, Node
from clusters.embedded.kubelet.probes import Probe, ProbeOutcome, ProbeWorker, parse_probe
from clusters.embedded.kubelet.process.process import Process, first_of, terminate


@dataclass(frozen=True, slots=True)
class ProbeState:
    """The fields `started` and `ready` of a container status."""

    started: bool = False
    ready: bool = False


class ProbeManager:
    """Probe one process of a Pod, starting from `state`. `changed` is called with each new state."""

    def __init__(
        self,
        node: Node,
        pod: Object,
        process: Process,
        ports: Mapping[str, int],
        state: ProbeState,
        changed: Callable[[ProbeState], None],
    ) -> None:
        self._node = node
        self._pod = pod
        self._process = process
        self._state = state
        self._changed = changed
        container = pod["spec"]["containers"][0]
        self._startup = parse_probe(container, "startupProbe", ports)
        self._readiness = parse_probe(container, "readinessProbe", ports)
        self._liveness = parse_probe(container, "livenessProbe", ports)

    async def run(self) -> None:
        """Probe until cancelled. Returns early without a readiness or liveness probe."""
        if self._startup is not None and not self._state.started:
            result = await self._worker(self._startup).wait_for_success(self._startup.startup_timeout)
            if not result.ok:
                await self._terminate(self._startup, "Startup", result)
        self._set_ready(self._state.ready or self._readiness is None)
        loops = [] if self._readiness is None else [self._run_readiness(self._readiness)]
        loops += [] if self._liveness is None else [self._run_liveness(self._liveness)]
        if loops:  # not a task group: a cancelled one leaves reference cycles, which keep the container in memory
            await first_of(*loops)

    async def _run_readiness(self, probe: Probe) -> None:
        async def changed(result: ProbeOutcome) -> None:
            self._set_ready(result.ok)
            if not result.ok:
                message = f"Readiness probe failed: {result.message}"
                await self._node.record(self._pod, "Warning", "Unhealthy", message)

        if not self._state.ready:
            await self._worker(probe).wait_for_success()
            self._set_ready(True)
            await self._node.clock.sleep(probe.period)
        await self._worker(probe).run(True, changed)

    async def _run_liveness(self, probe: Probe) -> None:
        async def changed(result: ProbeOutcome) -> None:
            if not result.ok:
                await self._terminate(probe, "Liveness", result)

        await self._node.clock.sleep(max(probe.initial_delay, probe.period))  # the container may still be starting
        await self._worker(probe).run(True, changed)

    async def _terminate(self, probe: Probe, kind: str, result: ProbeOutcome) -> None:
        message = f"{kind} probe failed: {result.message}; terminating the container"
        await self._node.record(self._pod, "Warning", "Unhealthy", message)
        grace = grace_period(self._pod) if probe.grace is None else probe.grace
        await terminate(self._process, grace, self._node.clock)

    def _set_ready(self, ready: bool) -> None:
        self._state = ProbeState(started=True, ready=ready)
        self._changed(self._state)

    def _worker(self, probe: Probe) -> ProbeWorker:
        return ProbeWorker(HOST, probe, self._node.clock)
