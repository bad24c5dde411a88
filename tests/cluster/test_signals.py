"""What the autoscaler hears on real Knative: activators that hold requests, queue-proxy's samples, the probe.

Plain Knative Services of a class that is nobody's: what a class has to do is done here once, and then nothing changes
by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import statistics
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from autoscaler.config import Activators, Sampling
from autoscaler.metrics.activators import ActivatorMonitor, activator_informers
from autoscaler.metrics.collector import MetricCollector, ScrapeTarget
from autoscaler.metrics.queue_proxy import QueueProxyScraper
from autoscaler.metrics.replicas import ReplicaSource
from autoscaler.metrics.source import NoPage, NoSample, PodScraper
from autoscaler.reconciler.prober import ActivatorProber
from autoscaler.reconciler.serverless_service import ServiceMode, make_serverless_service
from autoscaler.reconciler.status import Scale, make_status
from clusters.base.api import Cluster
from clusters.base.clock import SystemClock
from clusters.base.objects import DEPLOYMENT, POD, POD_AUTOSCALER, SERVERLESS_SERVICE, Key
from clusters.net.endpoints import endpoint_of
from serving.install.kinds import CORE_SERVICE
from tests.cluster.calling import Caller
from tests.cluster.plain import FIRST, MANAGER, NAME, NOTHING, PROGRAM, Plain, make_container
from tests.support.wait import eventually

TIMES = 20
HEARD_WITHIN = 0.25  # s from the request to the callback, at p50; 30-80 ms where the machine is not busy
ANSWERS = 5.0  # times what an activator takes to answer a poll: on a machine that is short of CPU
MOST_SHARE = 0.05  # of a core, for 40 polls a second
CALLERS, SLEEP_MS = 4, 500
NOBODYS = "by-hand.example.com"
HTTP_PORT = 80
STATS = "STATS_PORT = 9095"
ELSEWHERE = "STATS_PORT = 9195"


async def stand(plain: Plain, mode: ServiceMode, replicas: int, container: Mapping[str, Any] = NOTHING) -> None:
    """A Service that is Ready with so many replicas, none or one, and stays as it is."""
    scaling = {"initial-scale": str(replicas), "min-scale": str(replicas)}
    await plain.create(scaling=scaling, autoscaler_class=NOBODYS, container=container)
    await plain.until(lambda: plain.get(POD_AUTOSCALER) and plain.get(DEPLOYMENT, f"{FIRST}-deployment"))
    made = make_serverless_service(plain.get(POD_AUTOSCALER), mode)
    await plain.cluster.create(SERVERLESS_SERVICE, made, manager=MANAGER)
    await plain.running(replicas)
    await plain.until(lambda: (plain.get(SERVERLESS_SERVICE).get("status") or {}).get("serviceName"))
    autoscaler, service = plain.get(POD_AUTOSCALER), plain.get(SERVERLESS_SERVICE)
    status = make_status(autoscaler, service, Scale(replicas, replicas, replicas), SystemClock().now())
    await plain.cluster.patch(
        POD_AUTOSCALER, FIRST, {"status": status}, plain.namespace, manager=MANAGER, subresource="status"
    )
    await plain.ready()


@asynccontextmanager
async def listening(cluster: Cluster, revision: Key) -> AsyncIterator[ActivatorMonitor]:
    """A poller over the cluster's activators, at the pace of a revision at zero."""
    clock = SystemClock()
    informers = activator_informers(cluster, clock)
    poller = ActivatorMonitor(informers[POD], clock, Activators())
    poller.follow(lambda: [revision], lambda: True)
    tasks = [asyncio.create_task(informers.run())]
    await informers.synced()
    tasks.append(asyncio.create_task(poller.run()))
    try:
        await eventually(poller.refresh)
        yield poller
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class ClusterIps(AbstractResolver):
    """Names of Services by the API server, for who is outside of the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        name, namespace, *_ = host.split(".")
        address = (await self._cluster.get(CORE_SERVICE, name, namespace))["spec"]["clusterIP"]
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=socket.AI_NUMERICHOST)
        ]

    async def close(self) -> None:
        """Nothing is kept."""


async def test_a_request_to_what_is_at_zero_is_heard_at_once(cluster: Cluster, plain: Plain) -> None:
    revision = Key(plain.namespace, FIRST)
    await stand(plain, ServiceMode.PROXY, 0)
    called = asyncio.Event()
    delays, before = [], time.process_time()
    async with listening(cluster, revision) as poller, aiohttp.ClientSession() as session:
        answer = statistics.median([await seconds_to_an_answer(poller) for _ in range(TIMES)])
        poller.subscribe(lambda key: called.set() if key == revision else None)
        began = time.monotonic()
        for _ in range(TIMES):
            called.clear()
            sent = time.monotonic()
            request = asyncio.create_task(ask(session, plain))
            await asyncio.wait_for(called.wait(), 10)
            delays.append(time.monotonic() - sent)
            assert poller.load(revision).queued == 1
            called.clear()
            request.cancel()
            await asyncio.wait([request])
            await asyncio.wait_for(called.wait(), 10)  # it has gone
            assert poller.load(revision).queued == 0
        share = (time.process_time() - before) / (time.monotonic() - began)
        print(
            f"heard after {statistics.median(delays) * 1e3:.0f} ms at p50, {max(delays) * 1e3:.0f} ms at most "
            f"(a poll {answer * 1e3:.0f} ms); "
            f"{poller.counts.polls} polls, {poller.counts.unanswered} unanswered, {share:.1%} of a core"
        )
        assert poller.counts.rejected == 0
    assert statistics.median(delays) <= max(HEARD_WITHIN, ANSWERS * answer), "an idle machine, or a busy one"


async def test_forty_polls_a_second_cost_next_to_nothing(cluster: Cluster) -> None:
    async with listening(cluster, Key("nobody", "nobody-00001")) as poller:
        polls = poller.counts.polls
        share = min([await _share_of_a_second() for _ in range(3)])  # what else the machine does makes it longer
        print(f"{(poller.counts.polls - polls) / 3:.0f} polls a second: {share:.2%} of a core")
        assert share <= MOST_SHARE
        assert poller.signal_available


async def test_work_in_containers_that_are_not_ours_is_read_from_queue_proxy(
    cluster: Cluster, plain: Plain, caller: Caller
) -> None:
    program = PROGRAM.replace(STATS, ELSEWHERE)
    await stand(
        plain, ServiceMode.SERVE, 1, make_container(plain.image, NOTHING) | {"command": ["python", "-c", program]}
    )
    clock, sampling = SystemClock(), Sampling()
    endpoint = endpoint_of(plain.pods()[0])
    assert endpoint is not None
    server = PodScraper(clock, sampling)
    source = ReplicaSource(server, QueueProxyScraper(clock, sampling), clock)
    collector, key = MetricCollector(source, sampling), Key(plain.namespace, FIRST)
    target = {key: ScrapeTarget((endpoint,), 100.0)}

    async def work_after(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return (await collector.read(target))[key].work

    try:
        with pytest.raises(NoPage):
            await server.sample(endpoint)
        await eventually(lambda: collector.read(target))
        start = (await source.sample(endpoint)).requests
        async with caller.busy(CALLERS, ms=SLEEP_MS) as answers:
            await caller.rounds(answers, CALLERS)
            answered, began = answers.total, time.monotonic()
            work = [await work_after(1.0) for _ in range(4)]
            served = (answers.total - answered) / (time.monotonic() - began)
        assert statistics.mean(work) >= 0.5 * served * SLEEP_MS / 1000, "each request is there for as long, or longer"
        assert max(work) <= CALLERS * 1.1
        since = clock.monotonic()

        async def quiet() -> bool:
            with contextlib.suppress(NoSample):
                await collector.read(target)
                return await collector.is_quiet(key, (endpoint,), since)
            return False

        await eventually(quiet)
        assert (await source.sample(endpoint)).requests - start == pytest.approx(answers.total, rel=0.2)
        print(f"{work} in use, {answers.total} answers; {collector.unanswered} unanswered")
    finally:
        await source.close()


async def test_the_probe_is_answered_by_the_activator_as_long_as_it_is_in_the_path_alone(
    cluster: Cluster, plain: Plain
) -> None:
    revision = Key(plain.namespace, FIRST)
    await stand(plain, ServiceMode.SERVE, 1)
    prober = ActivatorProber(resolver=ClusterIps(cluster))
    try:
        for mode, expected in (("Serve", False), ("Proxy", True), ("Serve", False)):
            patch = {"spec": {"mode": mode}}
            await cluster.patch(SERVERLESS_SERVICE, FIRST, patch, plain.namespace, manager=MANAGER)

            async def answers(expected: bool = expected) -> bool:
                return await prober.in_path(revision, HTTP_PORT) is expected

            await eventually(answers)
            assert [await prober.in_path(revision, HTTP_PORT) for _ in range(10)] == [expected] * 10
        print(f"{prober.probes} probes, {prober.failed} of them not answered by the activator")
    finally:
        await prober.close()


async def seconds_to_an_answer(poller: ActivatorMonitor) -> float:
    """Until all activators have answered a poll that begins now, a pause of the pace included."""
    began = time.monotonic()
    await eventually(poller.refresh)
    return time.monotonic() - began


async def ask(session: aiohttp.ClientSession, plain: Plain) -> None:
    """A request that waits until it is cancelled."""
    url, headers = plain.request(NAME)
    async with session.get(url, headers=headers):
        pass


async def _share_of_a_second() -> float:
    """What this process takes of a core while it waits a second."""
    before, began = time.process_time(), time.monotonic()
    await asyncio.sleep(1.0)
    return (time.process_time() - before) / (time.monotonic() - began)
