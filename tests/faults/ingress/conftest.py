"""A real gateway and a real activator, with nothing behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clusters.clock import SystemClock
from clusters.gateway.envoy import Envoy
from tests.clusters.activator.conftest import Running, running
from tests.support.ports import free_port


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Envoy]:
    """A started gateway that nobody keeps running."""
    made = Envoy(tmp_path / "gateway", "127.0.0.1", free_port(), SystemClock())
    await made.start()
    try:
        yield made
    finally:
        await made.stop(grace=0.0)


@pytest.fixture
async def activator(tmp_path: Path) -> AsyncIterator[Running]:
    """An activator that knows nothing yet."""
    async with running(tmp_path / "activator") as one:
        yield one
