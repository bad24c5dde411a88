"""A real gateway and a real activator, with nothing behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clusters.gateway.envoy import Envoy
from tests.clusters.activator.conftest import Running, running
from tests.support.gateways import started_gateway


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Envoy]:
    """A started gateway that nobody keeps running."""
    async with started_gateway(tmp_path / "gateway") as made:
        yield made


@pytest.fixture
async def activator(tmp_path: Path) -> AsyncIterator[Running]:
    """An activator that knows nothing yet."""
    async with running(tmp_path / "activator") as one:
        yield one
