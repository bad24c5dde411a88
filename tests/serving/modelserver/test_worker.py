"""A worker as a process, beside a stand-in of vLLM; the test is its leader."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.support import vllm_stub
from tests.support.small_llama import write

WITHIN = 30.0  # s
Start = Callable[[], Awaitable[asyncio.subprocess.Process]]


@pytest.fixture
def leader() -> Iterator[socket.socket]:
    """A port that listens as the leader's server does."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield listener


@pytest.fixture
async def start(tmp_path: Path, leader: socket.socket) -> AsyncIterator[Start]:
    """Start the worker of rank 2."""
    vllm_stub.install(tmp_path / "bin")
    write(tmp_path / "model")
    (tmp_path / "token").write_text("secret\n")
    environment = {
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "MANAGEMENT_PORT": str(leader.getsockname()[1]),
        "KNODEL_LEADER": "127.0.0.1",
        "KNODEL_RANK": "2",
        "KNODEL_GROUP": str(tmp_path),
        "KNODEL_CACHE": str(tmp_path / "cache"),
        "KNODEL_TERMINATION_LOG": str(tmp_path / "why"),
        "TMPDIR": str(tmp_path),
    }
    arguments = ["--name", "m", "--storage-uri", (tmp_path / "model").as_uri(), "--format", "vllm", "--workers", "2"]
    started: list[asyncio.subprocess.Process] = []

    async def run() -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "serving.modelserver", *arguments, env=environment, stderr=asyncio.subprocess.PIPE
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def engine_of(process: asyncio.subprocess.Process) -> int:
    """The id of the process of vLLM, once it works."""
    assert process.stderr is not None
    async with asyncio.timeout(WITHIN):
        async for line in process.stderr:
            if found := re.search(rb"rank 2 of 127\.0\.0\.1, pid=(\d+)", line):
                return int(found[1])
    raise AssertionError("the worker has ended")


async def ends(process: asyncio.subprocess.Process) -> int | None:
    async with asyncio.timeout(WITHIN):
        await process.communicate()
    return process.returncode


def runs(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


async def test_a_worker_ends_with_its_leader(start: Start, leader: socket.socket) -> None:
    process = await start()
    engine = await engine_of(process)
    leader.close()
    assert await ends(process) == 0
    assert not runs(engine)


async def test_a_worker_ends_at_a_signal(start: Start) -> None:
    process = await start()
    engine = await engine_of(process)
    process.send_signal(signal.SIGTERM)
    assert await ends(process) == 0
    assert not runs(engine)


async def test_a_worker_whose_engine_ends_fails_with_the_reason(start: Start, tmp_path: Path) -> None:
    process = await start()
    os.kill(await engine_of(process), signal.SIGKILL)
    assert await ends(process) == 1
    assert "the worker ended by SIGKILL" in (tmp_path / "why").read_text()
