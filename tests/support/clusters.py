"""Running clusters for tests."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from clusters.base.clock import Clock, SystemClock
from clusters.base.objects import Kind
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.store.admission import Validator
from clusters.embedded.store.store import Store
from tests.support.loops import at_work


@contextlib.asynccontextmanager
async def embedded_cluster(
    path: Path, *, clock: Clock | None = None, validators: Mapping[Kind, Validator] | None = None
) -> AsyncIterator[EmbeddedCluster]:
    """An embedded cluster over the file `path`, its background tasks running."""
    async with running(Store.open(path), clock=clock, validators=validators) as cluster:
        yield cluster


@contextlib.asynccontextmanager
async def running(
    store: Store, *, clock: Clock | None = None, validators: Mapping[Kind, Validator] | None = None
) -> AsyncIterator[EmbeddedCluster]:
    """An embedded cluster over a store, which it closes in the end."""
    cluster = EmbeddedCluster(store, clock=clock or SystemClock(), validators=validators or {})
    try:
        async with at_work(cluster.run()):
            yield cluster
    finally:
        await store.close()
