"""Test the copies of model files on a running platform: their limit, and the deletion of unused copies."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from serving.platform import kept_files
from serving.platform.platform import Platform
from serving.storage.kept import GRACE_PERIOD, LIMIT_VARIABLE, used_bytes
from serving.types.settings.settings import load_settings
from tests.platform.machine import Machine
from tests.support import models
from tests.support.wait import eventually

ARTIFACTS = ("double", "triple", "slow")
SOON = 0.2  # s between two collections


@asynccontextmanager
async def platform(here: Machine) -> AsyncIterator[None]:
    """Yield a platform with the ports of `here`, in this process, with clocks that a test may set."""
    variables = {"KNODEL_CONTROL_TLS_PORT": here.environment["KNODEL_CONTROL_TLS_PORT"]}
    here.state.mkdir(mode=0o700)
    running = Platform(here.state, load_settings(None, variables, gateway_port=here.port, control_port=here.control))
    stop = asyncio.Event()
    task = asyncio.create_task(running.run(stop))
    ready = asyncio.create_task(running.ready.wait())
    try:
        await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        yield
    finally:
        ready.cancel()
        stop.set()
        await task


def age(kept: Path) -> None:
    """Make all copies older than the grace period of unused copies."""
    for entry in kept.glob("*/*"):
        long_ago = entry.stat().st_mtime - GRACE_PERIOD - 1.0
        os.utime(entry, (long_ago, long_ago))


async def test_copies_are_deleted_with_their_versions_and_free_space_within_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (models.write(tmp_path / name, name) for name in ARTIFACTS)
    limit = first.stat().st_size + second.stat().st_size
    monkeypatch.setattr(kept_files, "INTERVAL", SOON)
    monkeypatch.setenv(LIMIT_VARIABLE, str(limit))
    here = Machine(tmp_path)
    kept = here.state / "kept"

    async def run(*arguments: str, code: int = 0) -> str:
        return await asyncio.to_thread(here.run, *arguments, code=code)

    async def doctor() -> str:
        found = await asyncio.to_thread(here.complete, "doctor")
        [line] = [line for line in found.stdout.splitlines() if "stored copies use" in line]
        return " ".join(line.split())

    async def has_room_of(size: int) -> bool:
        assert used_bytes(kept) == size
        return True

    async with platform(here):
        await run("deploy", "stays", "--uri", str(first), "--min", "1")
        await run("deploy", "goes", "--uri", str(second))
        assert used_bytes(kept) == limit
        found = await doctor()
        assert f"stored copies use {limit} bytes of {limit} bytes" in found and LIMIT_VARIABLE in found
        refused = await run("deploy", "more", "--uri", str(third), code=1)
        assert f"kept model files use {limit} bytes of {limit} bytes: delete models" in refused

        age(kept)
        await asyncio.sleep(5 * SOON)  # the versions of both are there, though their copies are old
        assert used_bytes(kept) == limit
        await run("delete", "goes")
        await eventually(lambda: has_room_of(first.stat().st_size))
        found = await doctor()
        assert f"use {first.stat().st_size} bytes of {limit} bytes" in found and LIMIT_VARIABLE not in found
        first.unlink()
        await run("deploy", "again", "--uri", str(second))
        assert await asyncio.to_thread(here.ask, "again") == 3.0
        assert await asyncio.to_thread(here.ask, "stays") == 2.0
