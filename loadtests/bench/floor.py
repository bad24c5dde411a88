"""Lower and upper reference of a model's start: a bare fork, and a server started by exec.

    python -m loadtests.bench.floor FILE COUNT     print the milliseconds of COUNT bare starts as a JSON list

In a bare start, a process that has imported the engine forks. The child loads the file, warms up like the server and
reports through a pipe. No start by fork can be faster: there is no HTTP, no cluster and no probe.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from clusters.embedded.kubelet.process.zygote import SINGLE_THREADED, import_modules
from tests.support.ports import free_ports

LOOK = 0.002  # s between attempts to connect to a starting server
PATIENCE = 60.0  # s for a start by exec


def bare_starts(file: Path, count: int) -> list[float]:
    """Return the milliseconds of each of `count` bare starts, run in a single-threaded process of their own."""
    command = [sys.executable, "-m", "loadtests.bench.floor", str(file), str(count)]
    done = subprocess.run(command, env=os.environ | SINGLE_THREADED, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the bare starts failed: {done.stderr.strip()}")
    return [float(value) for value in json.loads(done.stdout)]


def start_by_exec(file: Path, name: str, body: bytes) -> float:
    """Return the milliseconds from exec of the model server to its first 200."""
    ports = free_ports(2)
    environ = os.environ | {"PORT": str(ports[0]), "MANAGEMENT_PORT": str(ports[1]), "ORT_DISABLE_TELEMETRY": "1"}
    command = [sys.executable, "-m", "serving.modelserver", "--name", name, "--storage-uri", file.as_uri()]
    began = time.perf_counter()
    server = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not _answers(ports[0], name, body):
            if time.perf_counter() - began > PATIENCE:
                raise SystemExit(f"a model server started by exec did not answer within {PATIENCE:g} s")
            time.sleep(LOOK)
        return (time.perf_counter() - began) * 1000
    finally:
        server.kill()
        server.wait()


def _answers(port: int, name: str, body: bytes) -> bool:
    head = f"POST /v2/models/{name}/infer HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += f"Content-Length: {len(body)}\r\n"
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            connection.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
            return connection.recv(4096).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def _bare_start(file: Path) -> float:
    from serving.engines.base.engine import EngineOptions
    from serving.engines.base.registry import find_format, find_loader
    from serving.engines.base.warmup import warm_up
    from serving.storage.fetch import fetch

    reader, writer = os.pipe()
    began = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        artifact = fetch(file.as_uri(), "", Path(), frozenset())
        warm_up(find_loader(find_format("", artifact.names()))(artifact, EngineOptions(threads=1)))
        os.write(writer, b"x")
        os._exit(0)
    os.read(reader, 1)
    took = (time.perf_counter() - began) * 1000
    os.waitpid(pid, 0)
    os.close(reader)
    os.close(writer)
    return took


def main() -> int:
    """Print the milliseconds of bare starts."""
    import_modules(
        [
            "serving.modelserver.run",
            "serving.engines.onnx.engine",
            "serving.engines.base.warmup",
            "serving.storage.fetch",
        ]
    )
    file, count = Path(sys.argv[1]), int(sys.argv[2])
    print(json.dumps([_bare_start(file) for _ in range(count)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
