"""Fixtures: the adapter, connected to the scripted API server by a kubeconfig, with short timeouts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from clusters.kubernetes import KubernetesCluster, Timeouts, connect
from tests.clusters.kubernetes.api_server import FakeApiServer, fake_api_server

QUICK = Timeouts(connect=0.5, request=5.0, total=30, watch=1.0, silence=1.2, first_backoff=0.02, largest_backoff=0.1)
"""For faults that are waited out in real time."""

Connected = Callable[..., Any]


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    """The scripted API server."""
    async with fake_api_server() as running:
        yield running


@pytest.fixture
def kubeconfig(server: FakeApiServer, tmp_path: Path) -> Path:
    """A kubeconfig with a token file."""
    (tmp_path / "token").write_text("first\n")
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig_of(f"http://127.0.0.1:{server.port}")))
    return path


@pytest.fixture
async def connected(kubeconfig: Path) -> AsyncIterator[Connected]:
    """Makes clusters with the options given; they are closed at the end."""
    async with AsyncExitStack() as stack:

        async def make(**options: Any) -> KubernetesCluster:
            connection = await stack.enter_async_context(await connect("fake", kubeconfig))
            options.setdefault("timeouts", QUICK)
            return KubernetesCluster(connection, chance=lambda: 0.0, **options)

        yield make


@pytest.fixture
async def cluster(connected: Connected) -> KubernetesCluster:
    """The adapter with quick timeouts."""
    made: KubernetesCluster = await connected()
    return made


def kubeconfig_of(server: str) -> dict[str, Any]:
    """One context, `fake`, whose user has a token file beside the kubeconfig."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "fake",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"tokenFile": "token"}}],
        "contexts": [{"name": "fake", "context": {"cluster": "c", "user": "u"}}],
    }
