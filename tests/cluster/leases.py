"""Leases of the installed Knodel, held while replicas of a test's own act in its namespace with its settings.

Two leaders with different settings would make revisions against each other. The installed replicas stand by while
their Lease is held, and lead again after it was released. `python -m tests.cluster` holds the Leases once for all tests
of that kind, which then run side by side; a test that runs by itself takes the Lease for as long as it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from clusters.base.api import Cluster
from clusters.base.clock import SystemClock
from clusters.base.errors import NotFound
from clusters.base.objects import LEASE
from clusters.runtime.lease import LeaderLease
from clusters.runtime.manager.options import SYSTEM_NAMESPACE
from clusters.runtime.manager.process import LEASE_DURATION, LEASE_PERIOD

MANAGER = "tests"
RUN = "tests-run"
"""Holder of a Lease that `python -m tests.cluster` holds for all tests of a phase."""
NOTICED_WITHIN = 1.5 * LEASE_PERIOD
"""s until a leader whose Lease was taken has observed it, and has stopped."""


async def take(cluster: Cluster, name: str, namespace: str, identity: str) -> str:
    """Give `identity` the Lease for replicas that act in `namespace`; return the namespace of that Lease.

    That is the installed Lease, or, where none is installed or the run holds it, one in `namespace`. When it has a
    leader, wait until that one has stopped.
    """
    try:
        installed = await cluster.get(LEASE, name, SYSTEM_NAMESPACE)
        system = namespace if installed["spec"].get("holderIdentity") == RUN else SYSTEM_NAMESPACE
        await cluster.patch(LEASE, name, {"spec": {"holderIdentity": identity}}, system, manager=MANAGER)
    except NotFound:
        return namespace
    await asyncio.sleep(NOTICED_WITHIN)
    return system


@asynccontextmanager
async def held(cluster: Cluster, name: str, identity: str = "") -> AsyncIterator[None]:
    """Hold the installed Lease until the end of the block; do nothing where none is, or where the run holds it."""
    identity = identity or f"tests-{uuid.uuid4().hex[:10]}"
    try:
        holder = (await cluster.get(LEASE, name, SYSTEM_NAMESPACE))["spec"].get("holderIdentity")
    except NotFound:
        yield
        return
    if holder == RUN and identity != RUN:
        yield
        return
    await take(cluster, name, SYSTEM_NAMESPACE, identity)
    lease = LeaderLease(cluster, name, SYSTEM_NAMESPACE, identity, SystemClock(), LEASE_DURATION, LEASE_PERIOD)
    await lease.acquire()
    holding = asyncio.create_task(lease.hold())
    try:
        yield
    finally:
        holding.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await holding
        await lease.release()
