"""Fixtures: a real Envoy on a free port, with its files in the test's folder, and backends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clusters.gateway.envoy import Envoy
from tests.clusters.gateway.backends import Backend, backend
from tests.clusters.gateway.tables import ONE, table
from tests.support.gateways import started_gateway


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Envoy]:
    """A started gateway that nobody keeps running."""
    async with started_gateway(tmp_path / "gateway") as made:
        yield made


@pytest.fixture
async def first() -> AsyncIterator[Backend]:
    async with backend("first") as running:
        yield running


@pytest.fixture
async def second() -> AsyncIterator[Backend]:
    async with backend("second") as running:
        yield running


@pytest.fixture
async def served(gateway: Envoy, first: Backend) -> int:
    """The port of a gateway whose model `m` is served by `first`."""
    await gateway.apply(table({"m-00001": 100}, {ONE: (first.address,)}))
    return gateway.port
