"""Many concurrent slow requests: the time until the required replicas are ready."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import aiohttp

from clusters.base.objects import MODEL, POD, WARM_POOL, is_deleting, is_true
from loadtests.bench.figure import Figure
from loadtests.cluster.bench import LOOK, MANAGER, Bench, until
from loadtests.cluster.subjects import NAME, POOL, WARM

CROWD = 8  # concurrent slow requests
CROWD_REPLICAS = 4  # replicas that they need: scaleTarget 2, targetUtilization 1
CROWD_MOST = 6
IDLE = 10.0  # s before them, so that the averages are zero
WATCHED = 20.0  # s
SOON = 5.0  # s, the aim


async def crowd(bench: Bench, uri: str) -> list[Figure]:
    """Send eight concurrent slow requests to one replica.

    Yield the seconds until four replicas are ready, their maximum, and the number of failed requests.
    """
    limits = {"minReplicas": 1, "maxReplicas": CROWD_MOST, "scaleTarget": 2, "targetUtilization": 1.0}
    await bench.cluster.patch(MODEL, NAME, {"spec": {"storageUri": uri, **limits}}, WARM.namespace, manager=MANAGER)
    await bench.cluster.patch(WARM_POOL, POOL, {"spec": {"size": CROWD_REPLICAS}}, WARM.namespace, manager=MANAGER)
    await until(partial(bench.is_ready, MODEL, WARM))
    await until(partial(bench.pool_has, CROWD_REPLICAS))
    await asyncio.sleep(IDLE)
    stop, most, lost, answered = asyncio.Event(), 0, 0, 0
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1.0]}]}

    async def loop() -> None:
        nonlocal lost, answered
        while not stop.is_set():
            try:
                await bench.ask(WARM, body)
                answered += 1
            except (SystemExit, aiohttp.ClientError):
                lost += 1

    tasks = [asyncio.create_task(loop()) for _ in range(CROWD)]
    began, took = time.perf_counter(), float("inf")
    while time.perf_counter() - began < WATCHED:
        found = (await bench.cluster.list(POD, WARM.namespace, WARM.pods)).items
        ready = sum(is_true(pod, "Ready") and not is_deleting(pod) for pod in found)
        most = max(most, ready)
        if ready >= CROWD_REPLICAS:
            took = min(took, time.perf_counter() - began)
        await asyncio.sleep(LOOK / 2)
    stop.set()
    await asyncio.gather(*tasks)
    print(f"\n{CROWD} slow requests at once: {CROWD_REPLICAS} replicas after {took:.1f} s (aim 5), at most {most} of "
          f"{CROWD_MOST} allowed, {answered} answered, {lost} lost")  # fmt: skip
    return [
        Figure(f"{CROWD} concurrent slow requests: time to {CROWD_REPLICAS} ready replicas", took, "s", SOON),
        Figure("  maximum of replicas", most, "", CROWD_MOST),
        Figure("  failed requests", lost, "", 0.0),
    ]
