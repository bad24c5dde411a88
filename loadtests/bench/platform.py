"""One platform of the benchmark: started by the command on free ports and a state folder of its own."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

KNODEL = [sys.executable, "-m", "serving.cli.main"]
LOOK = 0.005  # s between two looks at something that is about to happen


class Platform:
    """A running `knodel up --detach`."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.port, control, tls = _free_ports(3)
        self._environment = os.environ | {"KNODEL_STATE": str(state), "KNODEL_CONTROL_TLS_PORT": str(tls)}
        self._up = ["up", "--detach", "--port", str(self.port), "--control-port", str(control)]

    def start(self) -> float:
        """Seconds from the command's start until the platform is ready."""
        began = time.perf_counter()
        self.knodel(*self._up)
        return time.perf_counter() - began

    def stop(self) -> None:
        """`knodel down`."""
        self.knodel("down")

    def knodel(self, *arguments: str) -> str:
        """Run one command; raises CalledProcessError when it fails."""
        done = subprocess.run([*KNODEL, *arguments], env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"knodel {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def models(self) -> list[dict[str, Any]]:
        """All Models."""
        items: list[dict[str, Any]] = json.loads(self.knodel("list", "-o", "json"))["items"]
        return items

    def connection(self) -> http.client.HTTPConnection:
        """A kept connection to the gateway."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.connect()
        return connection

    def replica_address(self, name: str) -> tuple[str, int]:
        """Host and port of a replica's own server."""
        token = (self.state / "token").read_text().strip()
        host, _, port = json.loads((self.state / "platform.json").read_text())["control"].rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        path = f"/api/v1/namespaces/default/pods?labelSelector=knodel.dev/model={name}"
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        pod = json.loads(connection.getresponse().read())["items"][0]
        connection.close()
        ports = json.loads(pod["metadata"]["annotations"]["embedded.knodel.dev/ports"])
        return pod["status"]["podIP"], int(ports["8080"])


def infer(connection: http.client.HTTPConnection, name: str, body: bytes, host: str = "") -> int:
    """One request; returns the status code."""
    headers = {"Host": host or f"{name}.default.localhost", "Content-Type": "application/json"}
    connection.request("POST", f"/v2/models/{name}/infer", body, headers)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
