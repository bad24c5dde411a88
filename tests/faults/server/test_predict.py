"""Models whose code misbehaves: each caller gets an error of its protocol, and the next one an answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from serving.modelserver.execution.workers import GRACE
from tests.faults.server.process import ServerProcess, server_process
from tests.support.wait import eventually

RAISES, HANGS, NAN, WRONG_SHAPE, ENDLESS_TEXT, OUT_OF_MEMORY, LOST_DEVICE = range(1, 8)
MODEL = """
import time
import numpy as np

class Model:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [-1]}]
    outputs = [{"name": "y", "datatype": "FP32", "shape": [-1]}]
    thread_safe = True
    lost = False

    def predict(self, x):
        kind = int(x[0])
        if self.lost or kind == 7:
            Model.lost = True
            raise RuntimeError("CUDA error: device-side assert triggered")
        if kind == 1:
            open("/etc/secret/of/the/model")
        if kind == 2:
            time.sleep(3600)
        if kind == 3:
            return np.full(1, np.nan, np.float32)
        if kind == 4:
            return np.zeros((2, 2), np.float32)
        if kind == 5:
            return ["text" * 10_000_000]
        if kind == 6:
            raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return 2 * x
"""
TIMEOUT = 0.5  # s


def options(tmp_path: Path) -> tuple[Path, Path, *tuple[str, ...]]:
    """How the model is served."""
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path, tmp_path, "--format", "python", "--allow-code", "--slots", "2", "--timeout", str(TIMEOUT)


async def answers(server: ServerProcess) -> None:
    """It does."""
    answer = await server.infer(100.0)
    assert (answer.status, answer.json["outputs"][0]["data"]) == (200, [200.0])


@pytest.mark.fault("M4")
async def test_an_error_is_the_callers_alone_and_tells_no_place(tmp_path: Path) -> None:
    async with server_process(*options(tmp_path)) as server:
        for kind in (RAISES, NAN, WRONG_SHAPE, ENDLESS_TEXT):
            answer = await server.infer(kind)
            assert answer.status == 500
            assert len(answer.error) < 200
            assert not any(word in answer.error for word in ("/", "Traceback", "secret", "py"))
            await answers(server)
        assert (await server.stats())["active"] == 0


@pytest.mark.fault("M4")
async def test_who_hangs_is_told_at_the_timeout_and_keeps_no_slot(tmp_path: Path) -> None:
    async with server_process(*options(tmp_path)) as server:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        late = await asyncio.gather(server.infer(HANGS), server.infer(HANGS))
        assert [answer.status for answer in late] == [504, 504]
        assert loop.time() - begun < TIMEOUT + 1
        await eventually(server.idle, GRACE + 3)
        await answers(server)


@pytest.mark.fault("M11")
async def test_out_of_memory_is_one_requests_and_a_lost_device_ends_the_process(tmp_path: Path) -> None:
    why = tmp_path / "why"
    async with server_process(*options(tmp_path), KNODEL_TERMINATION_LOG=str(why)) as server:
        assert (await server.infer(OUT_OF_MEMORY)).status == 500
        await answers(server)
        lost = await server.infer(LOST_DEVICE)
        assert (lost.status, lost.headers["retry-after"]) == (503, "1")
        assert await asyncio.wait_for(server.process.wait(), 5) == 1
        assert "accelerator" in why.read_text()
