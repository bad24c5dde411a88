"""The contract's cluster: each adapter is one entry of `ADAPTERS`.

An adapter gives a running `Cluster` that serves `WIDGET`: namespaced, status and scale subresources, any fields. The
namespaces `contract-…` exist there or are made on first use.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from clusters.api import Cluster
from tests.support.clusters import embedded_cluster

Adapter = Callable[[Path], AbstractAsyncContextManager[Cluster]]


def _embedded(folder: Path) -> AbstractAsyncContextManager[Cluster]:
    return embedded_cluster(folder / "cluster.db")


ADAPTERS: dict[str, Adapter] = {"embedded": _embedded}


@pytest.fixture(params=sorted(ADAPTERS))
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    """A running cluster of one adapter."""
    async with ADAPTERS[request.param](tmp_path) as running:
        yield running


@pytest.fixture
def namespace() -> str:
    """A namespace that no other test uses."""
    return f"contract-{uuid.uuid4().hex[:12]}"
