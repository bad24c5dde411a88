"""A replica that ends with requests in it: asked to, it finishes them all; killed, those fail and no others."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from loadtests.bench.processes import processes_of
from tests.platform.machine import Machine, machine
from tests.scenarios.world import infer_body
from tests.support.wait import eventually

REQUESTS = 6
GRACE = 30.0  # s
REPLACED_WITHIN = 10.0  # s
SLEEPER = """
import os, signal, time

class Model:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [-1]}]
    outputs = [{"name": "y", "datatype": "FP32", "shape": [-1]}]
    thread_safe = True

    def predict(self, x):
        if x[0] < 0:
            os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(float(x[0]))
        return x
"""
SHORTENED = "requests of 2 s, not 12 s"


@asynccontextmanager
async def sleeper(folder: Path) -> AsyncIterator[tuple[Machine, aiohttp.ClientSession]]:
    """A platform with one replica of a model that sleeps as long as it is asked to."""
    with machine(folder) as here:
        path = folder / "sleeper.py"
        path.write_text(SLEEPER)
        await asyncio.to_thread(here.up)
        options = ("--uri", str(path), "--format", "python", "--min", "1", "--max", "1")
        await asyncio.to_thread(here.run, "deploy", "sleeper", *options)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60)) as session:
            yield here, session


async def ask(here: Machine, session: aiohttp.ClientSession, seconds: float) -> int:
    """The status of one request; 0 when there was none."""
    url = f"http://127.0.0.1:{here.port}/v2/models/sleeper/infer"
    try:
        async with session.post(url, json=infer_body(seconds)) as answer:
            text = await answer.text()
            if answer.status == 200:
                assert json.loads(text)["outputs"][0]["data"] == [seconds]
            return answer.status
    except aiohttp.ClientError:
        return 0


async def staggered(here: Machine, session: aiohttp.ClientSession, seconds: float) -> list[asyncio.Task[int]]:
    """Six requests, one after the other is on its way; all are in the replica or wait there."""
    made = []
    for _ in range(REQUESTS):
        made.append(asyncio.create_task(ask(here, session, seconds)))
        await asyncio.sleep(seconds / REQUESTS / 2)
    return made


def replica(here: Machine) -> int:
    """Its pid."""
    [pid] = [pid for pid, role in processes_of(here.state) if role == "replica"]
    return pid


@pytest.mark.timeout(180)
@pytest.mark.parametrize("way", ["signal", "deletion"])
@pytest.mark.fault("M5", shortened=SHORTENED)
async def test_all_that_is_in_it_is_answered_when_it_is_asked_to_end(tmp_path: Path, way: str, full: bool) -> None:
    seconds = 12.0 if full else 2.0
    async with sleeper(tmp_path) as (here, session):
        asked = await staggered(here, session, seconds)
        pid = replica(here)
        ended = time.monotonic()
        if way == "signal":
            os.kill(pid, signal.SIGTERM)
            later = asyncio.create_task(ask(here, session, 0.0))
        else:
            await asyncio.to_thread(here.run, "delete", "sleeper")
        assert await asyncio.gather(*asked) == [200] * REQUESTS
        await eventually(lambda: not Path(f"/proc/{pid}").exists(), GRACE)
        assert time.monotonic() - ended < GRACE
        if way == "signal":  # it is started again
            assert await later == 200
            assert await ask(here, session, 0.0) == 200


@pytest.mark.timeout(180)
@pytest.mark.parametrize("way", ["kill", "segfault"])
@pytest.mark.fault("M4", "M6")
async def test_those_that_are_in_it_fail_when_it_dies_and_the_next_is_answered(tmp_path: Path, way: str) -> None:
    async with sleeper(tmp_path) as (here, session):
        asked = await staggered(here, session, 2.0)
        killed = time.monotonic()
        if way == "kill":
            os.kill(replica(here), signal.SIGKILL)
        else:
            assert await ask(here, session, -1.0) in (502, 503)
        later = [asyncio.create_task(ask(here, session, 0.0)) for _ in range(REQUESTS)]
        lost = await asyncio.gather(*asked)
        assert set(lost) <= {200, 502, 503}
        assert set(lost) != {200}, "nobody was in it"
        assert {200, 502, 503} >= {await one for one in later}

        async def answers() -> bool:
            return await ask(here, session, 0.0) == 200

        await eventually(answers, REPLACED_WITHIN)
        assert time.monotonic() - killed < REPLACED_WITHIN
        assert [await ask(here, session, 0.0) for _ in range(20)] == [200] * 20
