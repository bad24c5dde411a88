"""Accepted, durable events on Kubernetes: one webhook process on this machine, with the API server and etcd of the
cluster.

Each event is a write to etcd, which limits the rate. The figures have no aim.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from clusters.base.api import Cluster
from clusters.base.objects import MODEL_EVENT, NAMESPACE
from loadtests.bench.events import CONNECTIONS, SIZE
from loadtests.bench.events_load import HOST, LoadResult, as_fast_as_answered, at_a_rate, batch, let_in, single
from loadtests.bench.figure import Figure, percentile
from loadtests.cluster.bench import MANAGER, until
from loadtests.cluster.subjects import RUN
from tests.support.ports import free_port

PLACE = f"bench-events-{RUN}"
SINGLES, BATCHES = 3000, 30
RATE, SECONDS = 100.0, 10.0


async def events(cluster: Cluster, kubeconfig: Path, context: str) -> list[Figure]:
    """Yield the figures of a cluster on which Knodel's definitions are installed.

    Raises SystemExit if an event was rejected, or acknowledged but not kept.
    """
    async with _place(cluster), _webhook(kubeconfig, context) as port:
        warm = LoadResult()

        async def answers() -> bool:
            with suppress(OSError):
                told = await as_fast_as_answered(port, [single()], 1)
                warm.taken += told.taken
            return warm.taken > 0

        await until(answers)
        alone = await as_fast_as_answered(port, [single() for _ in range(SINGLES)], CONNECTIONS)
        together = await as_fast_as_answered(port, [batch(SIZE) for _ in range(BATCHES)], 1)
        paced = await at_a_rate(port, [single() for _ in range(int(RATE * SECONDS))], CONNECTIONS, RATE)
        kept = len((await cluster.list(MODEL_EVENT, PLACE)).items)
    told = (alone, together, paced)
    promised, refused = warm.taken + sum(one.taken for one in told), sum(one.refused for one in told)
    if refused or kept != promised:
        raise SystemExit(f"{refused} requests were rejected; {promised} events acknowledged, {kept} kept")
    return [
        Figure(f"events accepted, one by one over {CONNECTIONS} connections", alone.rate, "/s"),
        Figure(f"events accepted, in batches of {SIZE}", together.rate, "/s"),
        Figure(f"acknowledgement latency at {RATE:g}/s, p50", percentile(paced.latencies, 0.5) * 1000, "ms"),
        Figure(f"acknowledgement latency at {RATE:g}/s, p99", percentile(paced.latencies, 0.99) * 1000, "ms"),
    ]


@asynccontextmanager
async def _place(cluster: Cluster) -> AsyncIterator[None]:
    """Create a namespace with an EventSource; delete it at the end."""
    await cluster.create(NAMESPACE, {"metadata": {"name": PLACE}}, manager=MANAGER)
    try:
        await let_in(cluster, PLACE)
        yield
    finally:
        await cluster.delete(NAMESPACE, PLACE)


@asynccontextmanager
async def _webhook(kubeconfig: Path, context: str) -> AsyncIterator[int]:
    """Its port."""
    port = free_port()
    argv = [
        sys.executable,
        "-m",
        "serving.platform.webhook_main",
        "--kubeconfig",
        str(kubeconfig),
        "--kube-context",
        context,
    ]
    argv += ["--namespace", PLACE, "--probe-port", "0", "--metrics-port", "0", "--log-format", "text"]
    environment = os.environ | {"PORT": str(port), "HOST": HOST}
    process = await asyncio.create_subprocess_exec(*argv, "--log-level", "warning", env=environment)
    try:
        yield port
    finally:
        process.terminate()
        await process.wait()
