"""Two hundred callers who never finish what they say: each is cut off, and others hardly wait longer."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import pytest

from serving.modelserver.base.limits import ServerLimits
from tests.faults.server.process import ServerProcess, call, server_process
from tests.serving.modelserver.client import HOST, Caller
from tests.support import models
from tests.support.wait import eventually

SLOW = 200
DRIP = 1.0  # s between two bytes
LIMIT = 10.0  # s
TOLERANCE = ServerLimits().linger + 1.0
"""s; whoever is refused may go on sending for a while, to see the answer and not a reset."""
REQUESTS = 1500
CALLERS = 2
FEW_MS = 0.005  # s; a p99 of a millisecond doubles by one turn of the scheduler
HEAD = b"POST /v2/models/m/infer HTTP/1.1\r\nhost: m\r\nx-slow: "
BODY = b"POST /v2/models/m/infer HTTP/1.1\r\nhost: m\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{"


@pytest.mark.fault("M7")
@pytest.mark.parametrize("beginning", [HEAD, BODY], ids=["head", "body"])
async def test_they_are_cut_off_and_others_hardly_notice(tmp_path: Path, beginning: bytes) -> None:
    async with server_process(models.write(tmp_path, "double"), tmp_path) as server:
        await p99(server)  # warm
        before = await p99(server)
        files = server.files()
        slow = [asyncio.create_task(lives(server.port, beginning)) for _ in range(SLOW)]
        await asyncio.sleep(DRIP)
        during = await p99(server)
        lived = await asyncio.gather(*slow)
        assert max(lived) < LIMIT + TOLERANCE, max(lived)
        assert during <= 2 * before + FEW_MS, (before, during)
        await eventually(lambda: server.files() <= files + 2 * CALLERS)  # it lingers for those that go on sending
    assert ServerLimits().head_time <= LIMIT


async def lives(port: int, beginning: bytes) -> float:
    """Seconds that a caller is let say one byte a second."""
    reader, writer = await asyncio.open_connection(HOST, port)
    begun = time.monotonic()
    ended = asyncio.create_task(_ended(reader))
    writer.write(beginning)
    while not (await asyncio.wait((ended,), timeout=DRIP))[0]:
        writer.write(b" ")
        assert time.monotonic() - begun < 3 * LIMIT, "it may go on for ever"
    writer.close()
    return ended.result() - begun


async def _ended(reader: asyncio.StreamReader) -> float:
    """When the server has ended the connection, with an answer or without."""
    with contextlib.suppress(ConnectionError):
        await reader.read()
    return time.monotonic()


async def p99(server: ServerProcess) -> float:
    """Seconds, of requests on kept connections."""
    taken: list[float] = []

    async def ask_again() -> None:
        caller = await Caller.connect(server.port)
        for _ in range(REQUESTS // CALLERS):
            begun = time.perf_counter()
            await caller.send(call(1.0))
            assert (await caller.answer()).status == 200
            taken.append(time.perf_counter() - begun)
        caller.close()

    await asyncio.gather(*(ask_again() for _ in range(CALLERS)))
    return sorted(taken)[len(taken) * 99 // 100]
