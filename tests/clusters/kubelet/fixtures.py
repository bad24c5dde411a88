"""The fixture `nodes`, for the tests of more than one folder: their `conftest.py` imports it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clusters.embedded.cluster import EmbeddedCluster
from tests.clusters.kubelet.nodes import Nodes


@pytest.fixture
async def nodes(cluster: EmbeddedCluster, tmp_path: Path) -> AsyncIterator[Nodes]:
    """Kubelets to be started on one state folder."""
    world = Nodes(cluster, tmp_path / "state")
    try:
        yield world
    finally:
        await world.close()
