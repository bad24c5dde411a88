"""The cluster of the contract tests: each adapter is an entry of `ADAPTERS`, and `--cluster` selects one.

An adapter provides a running `Cluster` that serves `WIDGET`: namespaced, with status and scale subresources and any
fields. The namespaces `contract-…` exist, or are created on first use.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from clusters.base.api import Cluster
from tests.contract.on_kubernetes import contract_cluster
from tests.support.clusters import embedded_cluster
from tests.support.kubernetes import kube_target

Adapter = Callable[[Path, pytest.Config], AbstractAsyncContextManager[Cluster]]


def _embedded(folder: Path, _: pytest.Config) -> AbstractAsyncContextManager[Cluster]:
    return embedded_cluster(folder / "cluster.db")


def _kubernetes(_: Path, config: pytest.Config) -> AbstractAsyncContextManager[Cluster]:
    return contract_cluster(kube_target(config))


ADAPTERS: dict[str, Adapter] = {"embedded": _embedded, "kubernetes": _kubernetes}


@pytest.fixture
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    """A running cluster of the chosen adapter."""
    async with ADAPTERS[request.config.getoption("--cluster")](tmp_path, request.config) as running:
        yield running


@pytest.fixture
def namespace() -> str:
    """A namespace that no other test uses."""
    return f"contract-{uuid.uuid4().hex[:12]}"
