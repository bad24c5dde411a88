"""Startup, readiness and liveness probes: their specification, a single probe, and their schedule.

A container that is not ready yet is probed every 10 ms at first and later every 100 ms, whatever its period, as in
Knative's queue-proxy. So probes hardly delay a cold start. After the first success the period applies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from clusters.base.clock import Clock
from clusters.base.objects import Object
from clusters.embedded.kubelet.process.errors import UnsupportedPod
from clusters.net.endpoints import DEFAULT_PORT, MANAGEMENT_PORT

SHORTEST_INTERVAL: Final = 0.010  # s between probes directly after the start
LONGEST_INTERVAL: Final = 0.100  # s between probes of a container that takes long to become ready
INTERVAL_SHARE: Final = 0.05  # of the time since the start; the largest share by which probes delay a start
DEFAULT_PERIOD: Final = 10.0  # s; as in Kubernetes, also for a period of 0, which Knative sets
DEFAULT_TIMEOUT: Final = 1.0  # s; as in Kubernetes
DEFAULT_FAILURES: Final = 3  # as in Kubernetes
MAX_RESPONSE_LINE: Final = 64 << 10  # bytes
_OK: Final = range(200, 400)  # status codes of success, as in Kubernetes


@dataclass(frozen=True, slots=True)
class ProbeHandler:
    """The action of a probe: an HTTP GET of `path`, or without a path a TCP connection."""

    port: int
    path: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Probe:
    """The specification of a probe, with times in seconds.

    `grace` is its terminationGracePeriodSeconds, which only liveness and startup probes have.
    """

    handler: ProbeHandler
    period: float = DEFAULT_PERIOD
    timeout: float = DEFAULT_TIMEOUT
    initial_delay: float = 0.0
    failures: int = DEFAULT_FAILURES
    successes: int = 1
    grace: float | None = None

    @property
    def startup_timeout(self) -> float:
        """Seconds after which a startup probe fails."""
        return self.period * self.failures


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """The outcome of a single probe. `message` describes a failure."""

    ok: bool
    message: str = ""


def parse_probe(container: Object, field: str, ports: Mapping[str, int]) -> Probe | None:
    """Return the probe in `container[field]`, e.g. `readinessProbe`; None when there is none.

    `ports` maps container ports to real ones. Raises UnsupportedPod.
    """
    spec = container.get(field)
    if not spec:
        return None
    grace = spec.get("terminationGracePeriodSeconds")
    return Probe(
        handler=_parse_handler(container, field, spec, ports),
        period=float(spec.get("periodSeconds") or DEFAULT_PERIOD),
        timeout=float(spec.get("timeoutSeconds") or DEFAULT_TIMEOUT),
        initial_delay=float(spec.get("initialDelaySeconds") or 0.0),
        failures=int(spec.get("failureThreshold") or DEFAULT_FAILURES),
        successes=int(spec.get("successThreshold") or 1),
        grace=None if grace is None else float(grace),
    )


def _parse_handler(container: Object, field: str, spec: Mapping[str, Any], ports: Mapping[str, int]) -> ProbeHandler:
    http, tcp = spec.get("httpGet"), spec.get("tcpSocket")
    action = http if http is not None else tcp
    if action is None or str(action.get("scheme", "HTTP")) != "HTTP":
        raise UnsupportedPod(
            f"unsupported {field} of container {container['name']!r}: this node supports httpGet (HTTP) and tcpSocket"
        )
    port = _real_port(container, field, action.get("port", 0), ports)
    if http is None:
        return ProbeHandler(port)
    headers = tuple((str(header["name"]), str(header["value"])) for header in http.get("httpHeaders") or ())
    return ProbeHandler(port, str(http.get("path") or "/"), headers)


def _real_port(container: Object, field: str, wanted: int | str, ports: Mapping[str, int]) -> int:
    declared = {str(port.get("name", "")): int(port["containerPort"]) for port in container.get("ports") or ()}
    first = next(iter(declared.values()), DEFAULT_PORT)
    number = declared.get(str(wanted), wanted) or first  # 0 selects the container's own port, as in Knative
    real = ports.get(str(number))
    if real is None:
        raise UnsupportedPod(
            f"invalid {field} of container {container['name']!r}: port {wanted!r} is not declared, use one of "
            f"{', '.join(str(port) for port in (*declared.values(), MANAGEMENT_PORT))}"
        )
    return real


async def probe_once(host: str, handler: ProbeHandler, timeout: float) -> ProbeOutcome:
    """Execute a probe once, on a new connection. Failures are returned."""
    address = f"{host}:{handler.port}"
    where = f"tcp {address}" if handler.path is None else f"GET http://{address}{handler.path}"
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(host, handler.port, limit=MAX_RESPONSE_LINE)
            try:
                if handler.path is None:
                    return ProbeOutcome(True)
                headers = {"Host": address, "User-Agent": "kube-probe/1.0", "Accept": "*/*"}
                lines = "".join(f"{name}: {value}\r\n" for name, value in (headers | dict(handler.headers)).items())
                writer.write(f"GET {handler.path} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode())
                words = (await reader.readline()).split(None, 2)
            finally:
                writer.close()
    except TimeoutError:
        return ProbeOutcome(False, f"{where}: no response within {timeout:g} s")
    except OSError as error:
        return ProbeOutcome(False, f"{where}: {error.strerror or error}")
    except ValueError:  # a line longer than MAX_RESPONSE_LINE
        words = []
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        return ProbeOutcome(False, f"{where}: not an HTTP response")
    status = int(words[1])
    return ProbeOutcome(True) if status in _OK else ProbeOutcome(False, f"{where}: HTTP status {status}")


def startup_interval(elapsed: float) -> float:
    """Return the seconds until the next probe of a container that is not ready `elapsed` seconds after its start."""
    return min(max(elapsed * INTERVAL_SHARE, SHORTEST_INTERVAL), LONGEST_INTERVAL)


class ProbeWorker:
    """Execute one probe of one running container on its schedule."""

    def __init__(self, host: str, probe: Probe, clock: Clock) -> None:
        self._host = host
        self._probe = probe
        self._clock = clock

    async def wait_for_success(self, timeout: float | None = None) -> ProbeOutcome:
        """Probe at short intervals until a success. Return the last failure when `timeout` seconds have passed."""
        await self._clock.sleep(self._probe.initial_delay)
        start = self._clock.monotonic()
        while True:
            result = await self._probe_once()
            elapsed = self._clock.monotonic() - start
            if result.ok or (timeout is not None and elapsed >= timeout):
                return result
            await self._clock.sleep(startup_interval(elapsed))

    async def run(self, healthy: bool, changed: Callable[[ProbeOutcome], Awaitable[None]]) -> None:
        """Probe at the period until cancelled. Call `changed` when a threshold changes `healthy`."""
        in_a_row = 0
        while True:
            result = await self._probe_once()
            in_a_row = in_a_row + 1 if result.ok != healthy else 0
            if in_a_row >= (self._probe.successes if result.ok else self._probe.failures):
                healthy, in_a_row = result.ok, 0
                await changed(result)
            await self._clock.sleep(self._probe.period)

    async def _probe_once(self) -> ProbeOutcome:
        return await probe_once(self._host, self._probe.handler, self._probe.timeout)
