"""The fixture `nodes`, which the `conftest.py` of several folders imports."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clusters.embedded.cluster import EmbeddedCluster
from tests.clusters.kubelet.nodes import Nodes


@pytest.fixture
async def nodes(cluster: EmbeddedCluster, tmp_path: Path) -> AsyncIterator[Nodes]:
    """Return the kubelets of one state folder; none is running yet."""
    world = Nodes(cluster, tmp_path / "state")
    try:
        yield world
    finally:
        await world.close()
