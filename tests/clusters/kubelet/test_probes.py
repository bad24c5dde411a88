"""Probes: specification, results and schedule."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from clusters.base.objects import Object
from clusters.embedded.kubelet.probes import (
    Probe,
    ProbeHandler,
    ProbeOutcome,
    ProbeWorker,
    parse_probe,
    probe_once,
    startup_interval,
)
from clusters.embedded.kubelet.process.errors import UnsupportedPod
from tests.support.clock import SteppedClock
from tests.support.wait import eventually

HOST = "127.0.0.1"
PORTS = {"8000": 20001, "9095": 20002}
CONTAINER: Object = {"name": "c", "ports": [{"name": "user-port", "containerPort": 8000}]}


def container(**probe: object) -> Object:
    """Return a container with a readiness probe."""
    return CONTAINER | {"readinessProbe": probe}


@pytest.mark.parametrize(
    ("port", "real"), [("user-port", 20001), (8000, 20001), (0, 20001), ("", 20001), (9095, 20002)]
)
def test_a_port_is_resolved_by_name_number_or_zero(port: int | str, real: int) -> None:
    probe = parse_probe(container(httpGet={"path": "/x", "port": port}), "readinessProbe", PORTS)

    assert probe == Probe(ProbeHandler(real, "/x"))


def test_the_defaults_are_those_of_kubernetes() -> None:
    spec = {
        "tcpSocket": {"port": 0},
        "periodSeconds": 0,
        "timeoutSeconds": 3,
        "failureThreshold": 5,
        "successThreshold": 2,
    }

    probe = parse_probe(container(**spec, initialDelaySeconds=7), "readinessProbe", PORTS)

    assert probe == Probe(ProbeHandler(20001), period=10.0, timeout=3.0, initial_delay=7.0, failures=5, successes=2)
    assert parse_probe(CONTAINER, "livenessProbe", PORTS) is None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"exec": {"command": ["true"]}}, "supports httpGet"),
        ({"httpGet": {"port": 0, "scheme": "HTTPS"}}, "supports httpGet"),
        ({"httpGet": {"port": 8443}}, "port 8443 is not declared, use one of 8000, 9095"),
        ({"httpGet": {"port": "grpc"}}, "port 'grpc' is not declared"),
    ],
)
def test_an_unsupported_probe_is_rejected(spec: Object, message: str) -> None:
    with pytest.raises(UnsupportedPod, match=message):
        parse_probe(container(**spec), "readinessProbe", PORTS)


class Server:
    """Answer each connection with fixed bytes."""

    def __init__(self) -> None:
        self.answer: bytes | None = b""
        self.requests: list[bytes] = []
        self.port = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one connection. There is no answer while `answer` is None."""
        self.requests.append(await reader.read(65536))
        if self.answer is None:
            await reader.read()
        else:
            writer.write(self.answer)
        writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """Run a server on a free port."""
    fixture = Server()
    listening = await asyncio.start_server(fixture.handle, HOST, 0)
    fixture.port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield fixture


@pytest.mark.parametrize(
    ("answer", "ok", "message"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", True, ""),
        (b"HTTP/1.0 399 x\r\n\r\n", True, ""),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", False, "HTTP status 503"),
        (b"HTTP/1.1 199 x\r\n\r\n", False, "HTTP status 199"),
        (b"SSH-2.0-x\r\n", False, "not an HTTP response"),
        (b"HTTP/1.1\r\n", False, "not an HTTP response"),
        (b"x" * 1_000_000, False, "not an HTTP response"),
        (b"", False, "not an HTTP response"),
        (None, False, "no response within 0.05 s"),
    ],
)
async def test_an_http_probe_succeeds_with_a_status_from_200_to_399(
    server: Server, answer: bytes | None, ok: bool, message: str
) -> None:
    server.answer = answer

    result = await probe_once(HOST, ProbeHandler(server.port, "/ready", (("X-A", "1"),)), 0.05)

    assert result.ok == ok and message in result.message
    assert server.requests[0].startswith(b"GET /ready HTTP/1.1\r\n") and b"X-A: 1\r\n" in server.requests[0]


async def test_a_tcp_probe_succeeds_with_a_connection(server: Server) -> None:
    assert (await probe_once(HOST, ProbeHandler(server.port), 1.0)).ok


async def test_a_refused_connection_is_a_failure(server: Server) -> None:
    result = await probe_once(HOST, ProbeHandler(1, "/ready"), 1.0)

    assert not result.ok and "GET http://127.0.0.1:1/ready" in result.message


def test_startup_intervals_grow_with_the_time_since_the_start() -> None:
    intervals = [startup_interval(passed) for passed in (0.0, 0.1, 0.4, 1.0, 60.0)]

    assert intervals == pytest.approx([0.01, 0.01, 0.02, 0.05, 0.1])


async def test_health_changes_after_as_many_results_in_a_row_as_the_thresholds(server: Server) -> None:
    clock = SteppedClock()
    probe = Probe(ProbeHandler(server.port, "/"), period=1.0, failures=3, successes=2)
    changes: list[ProbeOutcome] = []

    async def changed(result: ProbeOutcome) -> None:
        changes.append(result)

    running = asyncio.create_task(ProbeWorker(HOST, probe, clock).run(True, changed))
    sequence = "+--+---+-++"  # + success, - failure
    after: list[list[bool]] = []
    for number, sign in enumerate(sequence):
        server.answer = b"HTTP/1.1 200 x\r\n\r\n" if sign == "+" else b"HTTP/1.1 500 x\r\n\r\n"
        if number:
            clock.step(1.0)
        await _settle(server, number + 1, clock)
        after.append([result.ok for result in changes])
    running.cancel()

    assert after[5] == [] and after[6] == [False]  # the third failure in a row
    assert after[9] == [False] and after[10] == [False, True]  # the second success in a row


async def _settle(server: Server, requests: int, clock: SteppedClock) -> None:
    """Wait until that many requests were made and the worker sleeps."""
    await eventually(lambda: len(server.requests) >= requests and bool(clock._sleepers))


async def test_a_startup_probe_fails_after_its_timeout(server: Server) -> None:
    clock = SteppedClock()
    server.answer = b"HTTP/1.1 503 x\r\n\r\n"
    probe = Probe(ProbeHandler(server.port, "/"), period=10.0, failures=3)
    probing = asyncio.create_task(ProbeWorker(HOST, probe, clock).wait_for_success(probe.startup_timeout))

    await _settle(server, 1, clock)
    clock.step(29.0)
    await _settle(server, 2, clock)
    assert not probing.done()
    clock.step(1.0)

    assert not (await probing).ok
