"""Autoscalers of the test's own, in this process and limited to one namespace; what they write is recorded."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from autoscaler.config import AutoscalerSettings, Records, Zero
from autoscaler.main import PROGRAM, make
from autoscaler.settings_file import FileSettings, read_settings
from clusters.base.api import Cluster
from clusters.base.clock import SystemClock
from clusters.base.errors import NotFound
from clusters.base.objects import CONFIG_MAP, DEPLOYMENT, LEASE
from clusters.runtime.lease import LeaderLease
from clusters.runtime.manager.options import SYSTEM_NAMESPACE, parse_options
from clusters.runtime.manager.process import LEASE_DURATION, LEASE_PERIOD
from tests.cluster.acting import MANAGER, NOTICED_WITHIN, Recording

LEASE_NAME = PROGRAM.lease
GRACE = 2.0
"""s, as the testbed's: Kourier's Envoy follows within a second."""
UNBILLED = Records(usage_interval=3600.0)
"""No account is written while a test counts what is."""


@asynccontextmanager
async def own_autoscaler(
    cluster: Cluster, namespace: str, settings: FileSettings | None = None
) -> AsyncIterator[Recording]:
    """The autoscaler as its process composes it; ended at the end of the block as a process would, without a word."""
    recording = Recording(cluster)
    options = parse_options(PROGRAM.name, PROGRAM.about, ["--namespace", namespace], {"HOST": "127.0.0.1"})
    given = settings or FileSettings(AutoscalerSettings(zero=Zero(grace=GRACE), records=UNBILLED))
    component = make(cast(Cluster, recording), options, given, SystemClock())
    tasks = [asyncio.create_task(component.informers.run())]
    try:
        await component.informers.synced()
        tasks.append(asyncio.create_task(component.run()))
        yield recording
        for task in tasks:
            assert not task.done(), task
    finally:
        for task in reversed(tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def is_running(cluster: Cluster) -> bool:
    """Whether an installed autoscaler runs."""
    try:
        found = await cluster.get(DEPLOYMENT, LEASE_NAME, SYSTEM_NAMESPACE)
    except NotFound:
        return False
    return bool((found.get("status") or {}).get("readyReplicas"))


async def installed_grace(cluster: Cluster) -> float:
    """Seconds of grace of the installed autoscaler."""
    found = await cluster.get(CONFIG_MAP, "knodel-config", SYSTEM_NAMESPACE)
    return read_settings(found["data"]["config.yaml"], "ConfigMap knodel-config").settings.zero.grace


@asynccontextmanager
async def standing_by(cluster: Cluster) -> AsyncIterator[None]:
    """The installed autoscalers do not act until the end of the block: their Lease is held here."""
    if not await is_running(cluster):
        yield
        return
    identity = f"tests-{uuid.uuid4().hex[:10]}"
    taken = {"spec": {"holderIdentity": identity}}
    await cluster.patch(LEASE, LEASE_NAME, taken, SYSTEM_NAMESPACE, manager=MANAGER)
    lease = LeaderLease(cluster, LEASE_NAME, SYSTEM_NAMESPACE, identity, SystemClock(), LEASE_DURATION, LEASE_PERIOD)
    await lease.acquire()
    holding = asyncio.create_task(lease.hold())
    try:
        await asyncio.sleep(NOTICED_WITHIN)
        yield
    finally:
        holding.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await holding
        await lease.release()
