"""Fixtures of the tests of claims."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.autoscaler.warmpool.process import Process, running
from tests.autoscaler.warmpool.world import World, playing


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """An embedded cluster with a WarmPool, no members and no revisions."""
    async with playing(tmp_path / "state.db") as made:
        await made.pool()
        yield made


@pytest.fixture
async def process(world: World) -> AsyncIterator[Process]:
    """An autoscaler in that world."""
    async with running(world) as made:
        yield made
