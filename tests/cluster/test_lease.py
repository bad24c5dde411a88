"""Leader election on real Leases, by processes that are stopped, killed and asked to go (K8)."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from clusters.base.api import Cluster
from clusters.base.objects import CONFIG_MAP, LEASE, Object
from tests.cluster.lease_holder import DURATION, LEASE_NAME, RECORD
from tests.support.kubernetes import KubeTarget

PATIENCE = DURATION * 5  # s
MICRO_TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")


class Candidate:
    """A candidate's process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def says(self) -> str:
        """Its next line."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            return (await self.process.stdout.readline()).decode().strip()


@asynccontextmanager
async def candidate(target: KubeTarget, namespace: str, identity: str) -> AsyncIterator[Candidate]:
    """A running candidate; killed at the end."""
    arguments = ("-m", "tests.cluster.lease_holder", str(target.kubeconfig), target.context, namespace, identity)
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    try:
        yield Candidate(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.fixture
async def record(cluster: Cluster, namespace: str) -> Object:
    """What leaders write to."""
    obj: Object = {"metadata": {"name": RECORD, "namespace": namespace}, "data": {"by": "nobody"}}
    return await cluster.create(CONFIG_MAP, obj, manager="tests")


async def by(cluster: Cluster, namespace: str) -> str:
    """Who wrote last."""
    return str((await cluster.get(CONFIG_MAP, RECORD, namespace))["data"]["by"])


async def spec_of(cluster: Cluster, namespace: str) -> Object:
    """The Lease's spec."""
    spec: Object = (await cluster.get(LEASE, LEASE_NAME, namespace))["spec"]
    return spec


@pytest.mark.fault("K8")
@pytest.mark.usefixtures("record")
async def test_a_stopped_leader_is_replaced_and_its_late_write_refused(
    cluster: Cluster, namespace: str, target: KubeTarget
) -> None:
    async with candidate(target, namespace, "one") as one:
        assert await one.says() == "leads 0"
        async with candidate(target, namespace, "two") as two:
            one.process.send_signal(signal.SIGSTOP)
            assert await two.says() == "leads 1"
            assert await by(cluster, namespace) == "two"
            one.process.send_signal(signal.SIGCONT)
            assert await one.says() == "lost"
            assert await one.says() == "refused"
            assert await one.process.wait() == 0
            assert await by(cluster, namespace) == "two"
            spec = await spec_of(cluster, namespace)
            assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("two", 1)


@pytest.mark.usefixtures("record")
async def test_a_leader_that_is_asked_to_go_lets_the_next_one_in_at_once(
    cluster: Cluster, namespace: str, target: KubeTarget
) -> None:
    async with candidate(target, namespace, "one") as one:
        assert await one.says() == "leads 0"
        async with candidate(target, namespace, "two") as two:
            one.process.terminate()
            assert await one.says() == "released"
            assert await two.says() == "leads 1"
            spec = await spec_of(cluster, namespace)
            assert MICRO_TIME.match(spec["renewTime"]) and MICRO_TIME.match(spec["acquireTime"])
            assert spec["leaseDurationSeconds"] == DURATION


@pytest.mark.usefixtures("record")
async def test_a_killed_leader_is_followed_after_its_duration(
    cluster: Cluster, namespace: str, target: KubeTarget
) -> None:
    async with candidate(target, namespace, "one") as one, candidate(target, namespace, "two") as two:
        first = await asyncio.wait(
            [asyncio.ensure_future(one.says()), asyncio.ensure_future(two.says())], return_when=asyncio.FIRST_COMPLETED
        )
        leader = await by(cluster, namespace)
        (one if leader == "one" else two).process.kill()
        (waiting,) = first[1]
        assert await waiting == "leads 1"
        assert await by(cluster, namespace) != leader
