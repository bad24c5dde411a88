"""Control-plane processes as they run in their Pods: started with arguments, asked by probes, ended by signals."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from tests.support.ports import free_ports
from tests.support.wait import eventually

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class ReplicaProcess:
    """One process and where it answers."""

    process: asyncio.subprocess.Process
    probe_port: int
    metrics_port: int
    log: Path

    async def probe(self, path: str) -> int:
        """The status of a probe; 0 while nobody listens."""
        with contextlib.suppress(aiohttp.ClientError):
            async with aiohttp.request("GET", f"http://127.0.0.1:{self.probe_port}{path}") as answer:
                return answer.status
        return 0

    async def ready(self) -> bool:
        """Whether /readyz says so."""
        assert self.process.returncode is None, self.log.read_text()
        return await self.probe("/readyz") == 200

    async def metrics(self) -> dict[str, float]:
        """The page as values by name and labels."""
        async with aiohttp.request("GET", f"http://127.0.0.1:{self.metrics_port}/metrics") as answer:
            lines = [line for line in (await answer.text()).splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    async def leads(self) -> bool:
        """Whether it says that it does."""
        with contextlib.suppress(aiohttp.ClientError):
            return (await self.metrics())["knodel_leader"] == 1.0
        return False

    async def end(self) -> int:
        """SIGTERM; the exit code."""
        if self.process.returncode is None:
            self.process.terminate()
        return await asyncio.wait_for(self.process.wait(), 20)


@contextlib.asynccontextmanager
async def replica(
    module: str, arguments: Sequence[str], folder: Path, name: str = "replica", **environ: str
) -> AsyncIterator[ReplicaProcess]:
    """`python -m MODULE` with free ports, until the end of the block."""
    probe_port, metrics_port = free_ports(2)
    ports = ["--probe-port", str(probe_port), "--metrics-port", str(metrics_port)]
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, *arguments, *ports,
            cwd=ROOT, env={**os.environ, **environ}, stdout=output, stderr=output,
        )  # fmt: skip
    started = ReplicaProcess(process, probe_port, metrics_port, log)
    try:
        yield started
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def until_ready(*replicas: ReplicaProcess) -> None:
    """Return once all of them are."""
    for one in replicas:
        await eventually(one.ready)
