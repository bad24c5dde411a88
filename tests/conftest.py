"""Fixtures of all tests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clusters.clock import SystemClock
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.store import Store


@contextlib.asynccontextmanager
async def _running(path: Path) -> AsyncIterator[EmbeddedCluster]:
    store = Store.open(path)
    cluster = EmbeddedCluster(store, clock=SystemClock())
    task = asyncio.create_task(cluster.run())
    try:
        yield cluster
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await store.close()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    """A real embedded cluster over a fresh file, its background tasks running, without validators."""
    async with _running(tmp_path / "cluster.db") as running:
        yield running
