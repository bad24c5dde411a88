"""Fixtures of all tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clusters.embedded.cluster import EmbeddedCluster
from tests.support.clusters import embedded_cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    """A real embedded cluster over a fresh file, its background tasks running, without validators."""
    async with embedded_cluster(tmp_path / "cluster.db") as running:
        yield running
