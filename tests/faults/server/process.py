"""A model server as a process of its own, in an environment that a test makes hard: few files, a full pipe."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtests.bench.processes import bytes_of, cpu_seconds, files_of
from tests.serving.modelserver.client import Answer, ask, request, tensor
from tests.support.ports import free_ports
from tests.support.wait import eventually

NAME = "m"
READY = request("GET", "/v2/health/ready")
STATS = request("GET", "/stats")
STARTS_WITHIN = 30.0  # s


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """One that was started."""

    process: asyncio.subprocess.Process
    port: int
    management: int
    log: Path

    async def infer(self, value: float, **more: Any) -> Answer:
        """One inference."""
        return await ask(self.port, call(value, **more))

    async def ready(self) -> bool:
        """Whether it says so; the test fails when it has ended."""
        assert self.process.returncode is None, self.log.read_text()
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            return (await ask(self.port, READY)).status == 200
        return False

    async def stats(self) -> dict[str, Any]:
        """The page `/stats`."""
        found: dict[str, Any] = (await ask(self.management, STATS)).json
        return found

    async def idle(self) -> bool:
        """Whether no request has a slot or waits for one."""
        page = await self.stats()
        return (page["active"], page["queued"]) == (0, 0)

    def memory(self, name: str = "VmRSS") -> int:
        """Bytes that it holds in memory; with `VmHWM` the most that it ever did."""
        return bytes_of(self.process.pid, name)

    def files(self) -> int:
        """How many it has open."""
        return files_of(self.process.pid)

    def cpu(self) -> float:
        """Seconds of processor time so far."""
        return cpu_seconds(self.process.pid)


def call(value: float, datatype: str = "FP32") -> bytes:
    """An inference request of one number."""
    return request("POST", f"/v2/models/{NAME}/infer", json.dumps({"inputs": [tensor([value], datatype)]}).encode())


@contextlib.asynccontextmanager
async def server_process(
    artifact: Path | str, folder: Path, *options: str, within: Sequence[str] = (), pipe: int | None = None,
    wait: bool = True, **environ: str,
) -> AsyncIterator[ServerProcess]:  # fmt: skip
    """Serve a model file or URI, ready unless not `wait`, until the end of the block.

    `within`: a command that starts the one behind it (`sh -c 'ulimit -n 64; exec "$@"' sh`). What it says goes to
    `server.log` in `folder`, or into `pipe`, a file descriptor.
    """
    port, management = free_ports(2)
    log = folder / "server.log"
    uri = artifact if isinstance(artifact, str) else artifact.as_uri()
    command = (*within, sys.executable, "-m", "serving.modelserver", "--name", NAME, "--storage-uri", uri, *options)
    ports = {"PORT": str(port), "MANAGEMENT_PORT": str(management), "HOST": "127.0.0.1"}
    with log.open("wb") as output:
        said = output if pipe is None else pipe
        process = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, **ports, **environ}, stdout=said, stderr=said
        )
    made = ServerProcess(process, port, management, log)
    try:
        if wait:
            await eventually(made.ready, STARTS_WITHIN)
        yield made
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
