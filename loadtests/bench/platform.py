"""A platform for benchmarks, started with `knodel up` on free ports with a state folder of its own."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clusters.net import unix_sockets
from serving.types.settings.state import CONTROL_SOCKET
from tests.support.ports import free_ports

KNODEL = [sys.executable, "-m", "serving.cli.main"]
POOLS = "/apis/knodel.dev/v1alpha1/namespaces/default/warmpools/"
LOOK = 0.005  # s between two checks of a condition


class BenchPlatform:
    """A running `knodel up --detach`."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.port, control, tls = free_ports(3)
        self._environment = os.environ | {"KNODEL_STATE": str(state), "KNODEL_CONTROL_TLS_PORT": str(tls)}
        self._up = ["up", "--detach", "--port", str(self.port), "--control-port", str(control)]

    def start(self) -> float:
        """Start the platform; return the seconds until it is ready."""
        began = time.perf_counter()
        self.knodel(*self._up)
        return time.perf_counter() - began

    def stop(self) -> None:
        """`knodel down`."""
        self.knodel("down")

    def knodel(self, *arguments: str) -> str:
        """Run a command. Raises CalledProcessError if it fails."""
        done = subprocess.run([*KNODEL, *arguments], env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"knodel {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def models(self) -> list[dict[str, Any]]:
        """All Models."""
        items: list[dict[str, Any]] = json.loads(self.knodel("list", "-o", "json"))["items"]
        return items

    def connection(self) -> Connection:
        """Return a kept connection to the gateway."""
        return Connection("127.0.0.1", self.port)

    def pods(self, name: str) -> list[dict[str, Any]]:
        """Return the Pods of a Model, including terminating ones."""
        return self.list("pods", f"knodel.dev/model={name}")

    def list(self, plural: str, selector: str) -> list[dict[str, Any]]:
        """Return objects of the core group in namespace default."""
        path = f"/api/v1/namespaces/default/{plural}?labelSelector={selector}"
        found: list[dict[str, Any]] = self._ask("GET", path)["items"]
        return found

    def deploy(self, documents: Sequence[Mapping[str, object]]) -> None:
        """Deploy Models and wait until they are ready."""
        path = self.state.parent / "deployed.yaml"
        path.write_text("\n---\n".join(json.dumps(document) for document in documents))
        self.knodel("deploy", "-f", str(path), "--timeout", "300s")

    def pool_ready(self, name: str) -> int:
        """Return the number of members of a WarmPool that can be claimed."""
        return int((self._ask("GET", POOLS + name).get("status") or {}).get("ready") or 0)

    def change_pool(self, name: str, spec: Mapping[str, object]) -> None:
        """Change fields of a WarmPool through the API, without the start time of the command."""
        self._ask("PATCH", POOLS + name, {"spec": spec})

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        control = http.client.HTTPConnection("localhost")
        control.sock = unix_sockets.connect(self.state / CONTROL_SOCKET, timeout=30)
        token = (self.state / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"}
        control.request(method, path, None if body is None else json.dumps(body), headers)
        answer = control.getresponse()
        text = answer.read()
        control.close()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {answer.status} {text.decode()}")
        found: dict[str, Any] = json.loads(text)
        return found

    def replica(self, name: str) -> Connection:
        """Return a kept connection to the only replica of a Model, without the gateway."""
        (pod,) = self.pods(name)
        ports = json.loads(pod["metadata"]["annotations"]["embedded.knodel.dev/ports"])
        return Connection(pod["status"]["podIP"], int(ports["8080"]))


class Connection:
    """A kept HTTP/1.1 connection with little overhead: it sends a request in one piece and reads the response."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self.timing: dict[str, float] = {}

    def infer(self, name: str, body: bytes) -> int:
        """Send an inference request; return the status code. `timing` receives the stages of Server-Timing in ms."""
        head = (
            f"POST /v2/models/{name}/infer HTTP/1.1\r\nHost: {name}.default.localhost\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._socket.sendall(head.encode() + body)
        while b"\r\n\r\n" not in self._buffer:
            self._receive()
        answer, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(b":") for line in answer.split(b"\r\n"))}
        length = int(headers[b"content-length"])
        stages = (stage.partition(";dur=") for stage in headers.get(b"server-timing", b"").decode().split(","))
        self.timing = {name.strip(): float(duration) for name, _, duration in stages if duration}
        while len(self._buffer) < length:
            self._receive()
        self._buffer = self._buffer[length:]
        return int(answer.split(b" ", 2)[1])

    def _receive(self) -> None:
        piece = self._socket.recv(65536)
        if not piece:
            raise SystemExit("the server closed the connection in the middle of a response")
        self._buffer += piece
