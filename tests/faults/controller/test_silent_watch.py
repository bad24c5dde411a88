"""A watch over a line that is dead both ways while both ends think that it stands (K4)."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import pytest

from clusters.base.objects import MODEL, name_of
from clusters.embedded.cluster import EmbeddedCluster
from clusters.kubernetes import KubernetesCluster, Timeouts
from clusters.runtime.informer import Informer
from tests.faults.kit.proxy import PLAIN, Proxy, Script
from tests.serving.models import model_object
from tests.support.api import api_server
from tests.support.wait import eventually

NOTICED_WITHIN = 60.0  # s
SHORT = Timeouts(connect=1.0, request=2.0, total=3.0, watch=3.0, silence=4.0)


@pytest.mark.fault("K4", shortened="a watch is taken for dead after 4 s, not 50 s")
@pytest.mark.timeout(200)
async def test_a_half_open_watch_is_noticed_and_nothing_is_missed(
    cluster: EmbeddedCluster, tmp_path: Path, full: bool
) -> None:
    timeouts = Timeouts() if full else SHORT
    async with api_server(cluster, tmp_path, tls=False) as direct:
        port = int(direct.read_text().split("http://127.0.0.1:")[1].split()[0])
        async with Proxy(("127.0.0.1", port)) as line:
            kubeconfig = tmp_path / "through-the-line"
            kubeconfig.write_text(direct.read_text().replace(str(port), str(line.port)))
            async with KubernetesCluster.connect("knodel", kubeconfig, timeouts=timeouts) as seen:
                await _follow(cluster, Informer(seen, MODEL), line, timeouts)


async def _follow(cluster: EmbeddedCluster, informer: Informer, line: Proxy, timeouts: Timeouts) -> None:
    task = asyncio.create_task(informer.run())
    try:
        await cluster.create(MODEL, model_object("before"), manager="tests")
        await eventually(lambda: {name_of(one) for one in informer} == {"before"})
        line.script, began, connections = Script(silent=True), time.monotonic(), line.connections
        await cluster.create(MODEL, model_object("meanwhile"), manager="tests")
        await cluster.delete(MODEL, "before", "default")
        await eventually(lambda: line.connections > connections, NOTICED_WITHIN)
        noticed = time.monotonic() - began
        line.script = PLAIN
        await line.reset()
        await eventually(lambda: {name_of(one) for one in informer} == {"meanwhile"}, NOTICED_WITHIN)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert noticed <= timeouts.silence + 1.0 < NOTICED_WITHIN
