"""Startup, readiness and liveness probes: their settings, one try, and their rhythm.

Until a Pod is ready it is probed every 10 ms, later up to every 100 ms, whatever its period (as Knative's queue-proxy
does): a cold start is not to wait for a probe. Afterwards the period counts.
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

FASTEST: Final = 0.010  # s between tries right after the start
SLOWEST: Final = 0.100  # s between tries of a container that takes long to be ready
SLOWING: Final = 0.05  # of the time passed: the probes delay a start by at most this share of it
DEFAULT_PERIOD: Final = 10.0  # s; as Kubernetes, and for Knative's 0
DEFAULT_TIMEOUT: Final = 1.0  # s; as Kubernetes
DEFAULT_FAILURES: Final = 3  # as Kubernetes
LARGEST_HEAD: Final = 64 << 10  # bytes of an answer that are looked at
_OK = range(200, 400)  # status codes of success, as Kubernetes


@dataclass(frozen=True, slots=True)
class Target:
    """What one try asks: a connection, or (with `path`) an HTTP GET."""

    port: int
    path: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe's settings; times in seconds."""

    target: Target
    period: float = DEFAULT_PERIOD
    timeout: float = DEFAULT_TIMEOUT
    initial_delay: float = 0.0
    failures: int = DEFAULT_FAILURES
    successes: int = 1
    grace: float | None = None  # terminationGracePeriodSeconds of a liveness or startup probe

    @property
    def start_limit(self) -> float:
        """Seconds that a startup probe gives a container."""
        return self.period * self.failures


@dataclass(frozen=True, slots=True)
class Result:
    """One try; `message` says what was wrong."""

    ok: bool
    message: str = ""


def parse_probe(container: Object, field: str, ports: Mapping[str, int]) -> Probe | None:
    """`container[field]` (as in `readinessProbe`) with its port mapped to the real one; None when absent.

    Raises UnsupportedPod.
    """
    spec = container.get(field)
    if not spec:
        return None
    return Probe(
        target=_target(container, field, spec, ports),
        period=float(spec.get("periodSeconds") or DEFAULT_PERIOD),
        timeout=float(spec.get("timeoutSeconds") or DEFAULT_TIMEOUT),
        initial_delay=float(spec.get("initialDelaySeconds") or 0.0),
        failures=int(spec.get("failureThreshold") or DEFAULT_FAILURES),
        successes=int(spec.get("successThreshold") or 1),
        grace=None
        if spec.get("terminationGracePeriodSeconds") is None
        else float(spec["terminationGracePeriodSeconds"]),
    )


def _target(container: Object, field: str, spec: Mapping[str, Any], ports: Mapping[str, int]) -> Target:
    http, tcp = spec.get("httpGet"), spec.get("tcpSocket")
    action = http if http is not None else tcp
    if action is None or str(action.get("scheme", "HTTP")) != "HTTP":
        raise UnsupportedPod(
            f"{field} of container {container['name']!r}: this node knows httpGet (HTTP) and tcpSocket"
        )
    port = _real_port(container, field, action.get("port", 0), ports)
    if http is None:
        return Target(port)
    headers = tuple((str(header["name"]), str(header["value"])) for header in http.get("httpHeaders") or ())
    return Target(port, str(http.get("path") or "/"), headers)


def _real_port(container: Object, field: str, wanted: int | str, ports: Mapping[str, int]) -> int:
    declared = {str(port.get("name", "")): int(port["containerPort"]) for port in container.get("ports") or ()}
    first = next(iter(declared.values()), DEFAULT_PORT)
    number = declared.get(str(wanted), wanted) or first  # 0 is the container's own port, as in Knative
    real = ports.get(str(number))
    if real is None:
        raise UnsupportedPod(
            f"{field} of container {container['name']!r}: port {wanted!r} is not declared; it has "
            f"{', '.join(str(port) for port in (*declared.values(), MANAGEMENT_PORT))}"
        )
    return real


async def attempt(host: str, target: Target, timeout: float) -> Result:
    """Try once, on a connection of its own."""
    try:
        async with asyncio.timeout(timeout):
            return await _attempt(host, target)
    except TimeoutError:
        return Result(False, f"{_where(host, target)}: no answer within {timeout:g} s")
    except OSError as error:
        return Result(False, f"{_where(host, target)}: {error.strerror or error}")


async def _attempt(host: str, target: Target) -> Result:
    reader, writer = await asyncio.open_connection(host, target.port, limit=LARGEST_HEAD)
    try:
        if target.path is None:
            return Result(True)
        writer.write(_request(host, target))
        line = await reader.readline()
    except ValueError:  # a line longer than the limit
        return Result(False, f"{_where(host, target)}: not an HTTP answer")
    finally:
        writer.close()
    status = _status(line)
    if status is None:
        return Result(False, f"{_where(host, target)}: not an HTTP answer")
    return Result(True) if status in _OK else Result(False, f"{_where(host, target)}: HTTP status {status}")


def _request(host: str, target: Target) -> bytes:
    headers = {"Host": f"{host}:{target.port}", "User-Agent": "kube-probe/1.0", "Accept": "*/*", **dict(target.headers)}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"GET {target.path} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode()


def _status(line: bytes) -> int | None:
    words = line.split(None, 2)
    return int(words[1]) if len(words) >= 2 and words[0].startswith(b"HTTP/1.") and words[1].isdigit() else None


def _where(host: str, target: Target) -> str:
    return f"tcp {host}:{target.port}" if target.path is None else f"GET http://{host}:{target.port}{target.path}"


def pause(passed: float) -> float:
    """Seconds until the next try of a container that is not ready `passed` seconds after its start."""
    return min(max(passed * SLOWING, FASTEST), SLOWEST)


class Prober:
    """The rhythm of one probe of one running container."""

    def __init__(self, host: str, probe: Probe, clock: Clock) -> None:
        self._host = host
        self._probe = probe
        self._clock = clock

    async def first_success(self, limit: float | None = None) -> Result:
        """Try quickly until it succeeds; with `limit` seconds passed, the last failure is the answer."""
        await self._clock.sleep(self._probe.initial_delay)
        start = self._clock.monotonic()
        while True:
            result = await self._attempt()
            passed = self._clock.monotonic() - start
            if result.ok or (limit is not None and passed >= limit):
                return result
            await self._clock.sleep(pause(passed))

    async def follow(self, healthy: bool, changed: Callable[[Result], Awaitable[None]]) -> None:
        """Try at the period, and tell each change of health (thresholds passed) until cancelled."""
        in_a_row = 0
        while True:
            result = await self._attempt()
            in_a_row = in_a_row + 1 if result.ok != healthy else 0
            if in_a_row >= (self._probe.successes if result.ok else self._probe.failures):
                healthy, in_a_row = result.ok, 0
                await changed(result)
            await self._clock.sleep(self._probe.period)

    async def _attempt(self) -> Result:
        return await attempt(self._host, self._probe.target, self._probe.timeout)
