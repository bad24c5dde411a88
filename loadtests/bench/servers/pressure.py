"""Throughput and latency of a server under a closed loop: by wrk, and by h2load for gRPC."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from loadtests.bench.servers.load import PATH, Kind, Load
from loadtests.bench.servers.server import HOST, Ports

SCRIPT = Path(__file__).with_name("load.lua")
MARK = "BENCH "
LONGEST_ANSWER = "60s"  # wrk counts slower responses as errors
LEEWAY = 120.0  # s beyond the duration of a load


@dataclass(frozen=True, slots=True)
class Pressure:
    """Responses per second, and quantiles of their latency in ms."""

    rate: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Generator:
    """A load generator on one core."""

    core: int

    def press(self, load: Load, ports: Ports, connections: int, seconds: float) -> Pressure:
        """Run a closed loop. Raises SystemExit if a request is rejected."""
        with tempfile.NamedTemporaryFile(prefix="knodel-bench-") as body:
            body.write(load.body)
            body.flush()
            if load.kind is Kind.GRPC:
                command = _grpc(load, ports.grpc, body.name, connections, seconds)
            else:
                command = _wrk(load, ports.http, connections, seconds)
            return parse(self._run(command, body.name), load.label)

    def _run(self, command: list[str], body: str) -> str:
        command = ["taskset", "--cpu-list", str(self.core), *command]
        environment = os.environ | {"BENCH_BODY": body}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LEEWAY, check=False)
        if done.returncode:
            raise SystemExit(f"{command[3]} failed: {(done.stderr or done.stdout).strip()[-2000:]}")
        return done.stdout


def parse(output: str, label: str) -> Pressure:
    """Parse the output of a generator. Raises SystemExit if a request failed, since the figures would be wrong."""
    line = next((line for line in output.splitlines() if line.startswith(MARK)), None)
    if line is None:
        raise SystemExit(f"{label}: the generator printed no results: {output[-500:]}")
    found = json.loads(line.removeprefix(MARK))
    if found["refused"] or found["broken"] or not found["requests"]:
        raise SystemExit(f"{label}: some requests failed: {line}")
    rate = found["requests"] / (found["microseconds"] / 1e6)
    return Pressure(rate, *(found[name] / 1000 for name in ("p50", "p95", "p99")))


def wrk() -> str:
    """Return the path of wrk. Raises SystemExit if it is not installed."""
    return _program("wrk", "install it to generate load (package wrk on Debian and Ubuntu)")


def h2load() -> str:
    """Return the path of h2load. Raises SystemExit if it is not installed."""
    return _program("h2load", "install it to generate gRPC load (package nghttp2-client on Debian and Ubuntu)")


def _program(name: str, purpose: str) -> str:
    program = shutil.which(name)
    if program is None:
        raise SystemExit(f"{name} is not installed; {purpose}")
    return program


def _wrk(load: Load, port: int, connections: int, seconds: float) -> list[str]:
    headers = [word for name, value in load.headers.items() for word in ("--header", f"{name}: {value}")]
    times = ["--threads", "1", "--connections", str(connections), "--duration", f"{max(1, round(seconds))}s"]
    times += ["--timeout", LONGEST_ANSWER]
    return [wrk(), *times, "--script", str(SCRIPT), *headers, f"http://{HOST}:{port}{PATH}"]


def _grpc(load: Load, port: int, body: str, connections: int, seconds: float) -> list[str]:
    numbers = ",".join(map(repr, load.answer))
    program = [sys.executable, "-m", "loadtests.bench.servers.grpc_load", f"{HOST}:{port}", body]
    return [*program, "--connections", str(connections), "--seconds", str(seconds), f"--answer={numbers}"]
