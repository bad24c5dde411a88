"""Bodies of 300 MiB: refused at once where their length is told, at the limit where it is not, however many."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from serving.modelserver.base.limits import MEBIBYTE, ServerLimits
from tests.faults.server.process import ServerProcess, server_process
from tests.serving.modelserver.client import Answer, Caller, request
from tests.support import models

SIZE = 300 * MEBIBYTE
AT_ONCE = 8
PATH = "/v2/models/m/infer"
OVERHEAD = 32 * MEBIBYTE  # buffers of connections, and what the allocator keeps


async def chunked(server: ServerProcess) -> Answer:
    """A body whose length nobody tells, as far as it is taken."""
    caller = await Caller.connect(server.port)
    caller.write(request("POST", PATH, transfer_encoding="chunked", content_type="application/octet-stream"))
    answer = asyncio.create_task(caller.answer())
    piece = b"%x\r\n%b\r\n" % (MEBIBYTE, bytes(MEBIBYTE))
    for _ in range(SIZE // MEBIBYTE):
        try:
            await caller.send(piece)
        except ConnectionError:  # it has been refused, and sent on
            break
        if answer.done():
            break
    try:
        return await answer
    finally:
        caller.close()


@pytest.mark.fault("M8")
async def test_a_length_that_is_told_is_refused_before_a_byte_of_it(tmp_path: Path) -> None:
    async with server_process(models.write(tmp_path, "double"), tmp_path) as server:
        before = server.memory()
        caller = await Caller.connect(server.port)
        caller.write(request("POST", PATH, content_length=str(SIZE)))
        assert (await caller.answer()).status == 413
        caller.close()
        assert server.memory("VmHWM") - before < MEBIBYTE


@pytest.mark.fault("M8")
async def test_one_without_a_length_is_refused_at_the_limit(tmp_path: Path) -> None:
    async with server_process(models.write(tmp_path, "double"), tmp_path) as server:
        before = server.memory()
        assert (await chunked(server)).status == 413
        assert server.memory("VmHWM") - before < 2 * ServerLimits().body + OVERHEAD
        assert (await server.infer(1.0)).status == 200


@pytest.mark.fault("M8")
async def test_many_at_once_borrow_what_there_is_and_no_more(tmp_path: Path) -> None:
    async with server_process(models.write(tmp_path, "double"), tmp_path) as server:
        before = server.memory()
        statuses = [answer.status for answer in await asyncio.gather(*(chunked(server) for _ in range(AT_ONCE)))]
        assert set(statuses) <= {413, 429}, statuses
        assert server.memory("VmHWM") - before < ServerLimits().body_memory + ServerLimits().body + OVERHEAD
        assert (await server.infer(1.0)).status == 200
