"""Fixtures: running controllers of Knative Serving."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from clusters.base.api import Cluster
from clusters.base.clock import SystemClock
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.knative import KnativeServing
from clusters.runtime.informer import Informers
from tests.clusters.knative.stage import Stage
from tests.support.loops import at_work


@contextlib.asynccontextmanager
async def running(cluster: EmbeddedCluster, seen_as: Cluster | None = None) -> AsyncIterator[Stage]:
    """Run the controllers over `cluster` (as `seen_as` shows it)."""
    informers = Informers(seen_as or cluster)
    serving = KnativeServing(
        seen_as or cluster,
        informers,
        clock=SystemClock(),
        domain=lambda namespace, name: f"{name}.{namespace}.localhost",
        url=lambda host: f"http://{host}:8080",
    )
    async with at_work(informers.run(), serving.run()):
        yield Stage(cluster)


@pytest.fixture
async def stage(cluster: EmbeddedCluster) -> AsyncIterator[Stage]:
    """A stage with running controllers."""
    async with running(cluster) as stage:
        yield stage
