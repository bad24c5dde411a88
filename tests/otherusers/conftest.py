"""Fixtures of the tests in which another user of the machine attacks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from clusters.embedded.cluster import EmbeddedCluster
from tests.clusters.kubelet.nodes import Nodes
from tests.otherusers.users import Attacker, attacking, missing


@pytest.fixture(scope="session")
def attacker() -> Iterator[Attacker]:
    """A program of another user."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    with attacking() as running:
        yield running


@pytest.fixture
async def nodes(cluster: EmbeddedCluster, tmp_path: Path) -> AsyncIterator[Nodes]:
    """Kubelets to be started on one state folder."""
    world = Nodes(cluster, tmp_path / "state")
    try:
        yield world
    finally:
        await world.close()
