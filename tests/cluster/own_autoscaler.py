"""Autoscalers of the test's own, in this process and limited to one namespace; what they write is recorded."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from autoscaler.config import AutoscalerSettings, Records, Zero
from autoscaler.main import PROGRAM, make
from autoscaler.settings_file import FileSettings, read_settings
from clusters.base.api import Cluster
from clusters.base.clock import SystemClock
from clusters.base.errors import NotFound
from clusters.base.objects import CONFIG_MAP, DEPLOYMENT
from clusters.runtime.manager.options import SYSTEM_NAMESPACE, parse_options
from tests.cluster.acting import Recording

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
