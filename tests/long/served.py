"""`knodel serve` as a user starts it: a process of its own, until a test is over."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.ports import free_ports
from tests.testbed.waiting import becomes

HOST = "127.0.0.1"
KNODEL = (sys.executable, "-m", "serving.cli.main", "serve")
STARTS_WITHIN = 60.0  # s; some engines import for seconds on a busy machine
ENDS_WITHIN = 30.0  # s, as Kubernetes grants
HTTP_OPTION, GRPC_OPTION = "--port", "--grpc-port"


@dataclass(frozen=True, slots=True)
class Served:
    """A server that is ready."""

    pid: int
    port: int
    grpc_port: int

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://{HOST}:{self.port}"

    def ask(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Any:
        """The answer in JSON. Raises AssertionError unless its status is 200."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=ENDS_WITHIN)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        assert answer.status == http.client.OK, (answer.status, content[:500])
        return json.loads(content)


@contextmanager
def served(log: Path, *arguments: str, command: Sequence[str] = KNODEL) -> Iterator[Served]:
    """`knodel serve` with these arguments, on ports of its own; what it says goes to `log`.

    Raises AssertionError when it does not become ready, or does not end with 0 at SIGTERM.
    """
    port, grpc_port = free_ports(2)
    ports = (HTTP_OPTION, str(port), GRPC_OPTION, str(grpc_port))
    with log.open("wb") as output:
        process = subprocess.Popen([*command, *arguments, *ports], stdout=output, stderr=output)
    try:
        _wait(process, port, log)
        yield Served(process.pid, port, grpc_port)
        process.terminate()
        assert process.wait(ENDS_WITHIN) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    assert becomes(lambda: is_ready(port) or process.poll() is not None, STARTS_WITHIN), log.read_text()
    assert process.poll() is None, log.read_text()


def is_ready(port: int) -> bool:
    """Whether a server on this port says that it is ready."""
    connection = http.client.HTTPConnection(HOST, port, timeout=STARTS_WITHIN)
    try:
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()
