"""Fixtures: a real cluster, a real Envoy, an activator that records its targets, and backends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clusters.base.clock import SystemClock
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.dataplane.controller import DataPlane
from clusters.gateway.envoy import Envoy
from tests.clusters.dataplane.stage import Activator, Stage, data_plane
from tests.clusters.gateway.backends import Backend, backend
from tests.support.ports import free_port


@pytest.fixture
async def envoy(tmp_path: Path) -> AsyncIterator[Envoy]:
    made = Envoy(tmp_path / "gateway", "127.0.0.1", free_port(), SystemClock())
    await made.start()
    yield made
    await made.stop(grace=0.0)


@pytest.fixture
def activator() -> Activator:
    return Activator()


@pytest.fixture
async def holding() -> AsyncIterator[Backend]:
    """The address at which the activator accepts requests."""
    async with backend("activator") as running:
        yield running


@pytest.fixture
async def one() -> AsyncIterator[Backend]:
    async with backend("one") as running:
        yield running


@pytest.fixture
async def two() -> AsyncIterator[Backend]:
    async with backend("two") as running:
        yield running


@pytest.fixture
def stage(cluster: EmbeddedCluster) -> Stage:
    return Stage(cluster)


@pytest.fixture
async def plane(
    cluster: EmbeddedCluster, envoy: Envoy, activator: Activator, holding: Backend
) -> AsyncIterator[DataPlane]:
    async with data_plane(cluster, envoy, activator, holding) as running:
        yield running
