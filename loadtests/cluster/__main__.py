"""Benchmarks on real Kubernetes with Knative: starts from zero, many slow requests, and events.

Starts alternate between Knative's class, Knodel's class without a warm pool, and with one. The cluster is that of
KUBECONFIG, else the testbed, with Knodel installed. All starts use the same model (magika, 3 MB ONNX) and image, and
requests go through the ingress. The time is measured by the client, from before it connects until the whole response.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform as machine
import sys
import tempfile
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import aiohttp

from clusters.base.errors import NotFound
from clusters.base.objects import MODEL, NAMESPACE, SERVICE, WARM_POOL
from examples.magika_client import model_file
from loadtests.bench.figure import Figure
from loadtests.bench.page import write_page
from loadtests.bench.record import keep, measured_now
from loadtests.cluster.bench import LONGEST, MANAGER, Bench, until
from loadtests.cluster.crowd import crowd
from loadtests.cluster.events import events
from loadtests.cluster.starts import report, starts
from loadtests.cluster.subjects import COLD, KPA, POOL_SIZE, SUBJECTS, WARM, knative_service, model, pool
from tests.support.artifacts import artifact_server
from tests.support.kubernetes import KubeTarget, find_target, installed_settings, kubernetes_cluster

STARTS = 20
MODELS, EVENTS = PARTS = ("models", "events")


@asynccontextmanager
async def deployed(bench: Bench, uri: str) -> AsyncIterator[None]:
    """Deploy all three subjects and wait until they are ready; delete their namespaces at the end."""
    for subject in SUBJECTS:
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": subject.namespace}}
        await bench.cluster.create(NAMESPACE, made, manager=MANAGER)
    try:
        await bench.cluster.create(SERVICE, knative_service(KPA, uri, bench.settings), manager=MANAGER)
        await bench.cluster.create(MODEL, model(COLD, uri), manager=MANAGER)
        await bench.cluster.create(WARM_POOL, pool(WARM, POOL_SIZE), manager=MANAGER)
        await bench.cluster.create(MODEL, model(WARM, uri), manager=MANAGER)
        for kind, subject in ((SERVICE, KPA), (MODEL, COLD), (MODEL, WARM)):
            await until(partial(bench.is_ready, kind, subject))
        yield
    finally:
        for subject in SUBJECTS:
            with suppress(NotFound):
                await bench.cluster.delete(NAMESPACE, subject.namespace)


async def run(parts: Collection[str], count: int) -> list[Figure]:
    """Print and record the results of the parts."""
    target = find_target()
    print(f"{machine.platform()}, {os.cpu_count()} cores, {target.context}; {count} starts each")
    found = await _models(target, count) if MODELS in parts else []
    if EVENTS in parts:
        async with kubernetes_cluster(target) as cluster:
            told = await events(cluster, target.kubeconfig, target.context)
            print(*told, sep="\n")
            found += told
    return found


async def _models(target: KubeTarget, count: int) -> list[Figure]:
    """Return the figures of starts and of slow requests."""
    with tempfile.TemporaryDirectory() as folder, artifact_server(Path(folder), target.server) as artifacts:
        (Path(folder) / "magika.onnx").write_bytes(model_file().read_bytes())
        timeout = aiohttp.ClientTimeout(total=LONGEST)
        async with kubernetes_cluster(target) as cluster, aiohttp.ClientSession(timeout=timeout) as client:
            bench = Bench(cluster, await installed_settings(cluster), client)
            async with deployed(bench, artifacts.uri("magika")):
                return [*report(await starts(bench, count)), *await crowd(bench, artifacts.uri("slow"))]


def main() -> int:
    """Run the benchmarks. The exit code is 1 if an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--starts", type=int, default=STARTS, help="starts of each subject [%(default)s]")
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS, help="parts to run [all]")
    parser.add_argument("--keep", action="store_true", help="write the figures to docs/evidence/performance.md")
    options = parser.parse_args()
    found = asyncio.run(run(options.only, options.starts))
    if options.keep:
        write_page(keep({"cluster": measured_now(found)}))
    return int(any(figure.missed for figure in found))


if __name__ == "__main__":
    sys.exit(main())
