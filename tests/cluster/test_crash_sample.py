"""The controller ends after its n-th write to real Kubernetes; the next one brings about what there would be without.

The embedded cluster is swept for every write and every part (tests/faults/crash); this is a sample of it. The replica
is one of the test's own: after its n-th write, which the API server has answered, nothing leaves it any more, not even
the release of its Lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from autoscaler.main import PROGRAM as AUTOSCALER
from clusters.base.api import Cluster
from clusters.base.errors import KnodelError, Unavailable
from clusters.base.objects import CONFIGURATION, LEASE, MODEL, REVISION, ROUTE, SERVICE, Kind, is_true, name_of
from serving.platform.main import PROGRAM as CONTROLLER
from tests.cluster.acting import WRITES, Recording, acting, settings_of
from tests.cluster.place import MANAGER, PATIENCE, SMALL
from tests.scenarios.world import World, model, traffic_of
from tests.support.artifacts import ArtifactServer
from tests.support.kubernetes import KubeTarget

pytestmark = [pytest.mark.timeout(400), pytest.mark.fault("K1", shortened="writes 1 to 4 of a deploy and a canary")]

CRASHED_WITHIN = 150.0  # s until the n-th write
SAMPLE = (1, 2, 3, 4)


class Crashing(Recording):
    """A cluster that is out of reach after the n-th write, Leases apart."""

    def __init__(self, cluster: Cluster, write: int, crashed: asyncio.Event) -> None:
        super().__init__(cluster)
        self._last = write
        self._crashed = crashed

    def __getattr__(self, verb: str) -> Any:
        method = super().__getattr__(verb)
        if verb not in WRITES:
            return method

        async def counted(kind: Kind, *arguments: Any, **keywords: Any) -> Any:
            if self._crashed.is_set():
                raise Unavailable("this replica was killed")
            answer = await method(kind, *arguments, **keywords)
            if kind is not LEASE and len(self.writes) >= self._last:
                self._crashed.set()
                raise Unavailable("this replica is killed before it hears of its write")
            return answer

        return counted


async def crash(write: int, cluster: Cluster, target: KubeTarget, namespace: str, folder: Path) -> None:
    """A controller that acts in the namespace until its n-th write."""
    crashed = asyncio.Event()
    record, settings = partial(Crashing, write=write, crashed=crashed), await settings_of(cluster)
    with suppress(KnodelError):
        async with acting(CONTROLLER, cluster, target, namespace, folder, settings, record):
            await asyncio.wait_for(crashed.wait(), CRASHED_WITHIN)
    assert crashed.is_set()


@pytest.fixture(autouse=True)
async def _autoscaler(cluster: Cluster, target: KubeTarget, namespace: str, tmp_path: Path) -> AsyncIterator[None]:
    """An autoscaler in the namespace: the installed one stands by."""
    async with acting(AUTOSCALER, cluster, target, namespace, tmp_path, await settings_of(cluster)):
        yield


@pytest.mark.parametrize("write", SAMPLE)
async def test_the_next_controller_ends_what_was_begun_and_nothing_is_doubled(
    cluster: Cluster, target: KubeTarget, namespace: str, artifacts: ArtifactServer, tmp_path: Path, write: int
) -> None:
    settings = await settings_of(cluster)
    gateway = f"http://{settings.gateway.address}:{settings.gateway.port}"
    world = World(cluster, gateway, settings.gateway.domain, artifacts.uri, defaults=SMALL, patience=PATIENCE)
    wanted = model("cut", namespace, storageUri=artifacts.uri("double"), minReplicas=1, **SMALL)
    try:
        await cluster.create(MODEL, wanted, manager=MANAGER)
        await crash(write, cluster, target, namespace, tmp_path)
        async with acting(CONTROLLER, cluster, target, namespace, tmp_path, settings):
            await world.ready("cut", namespace)
        change = {"spec": {"storageUri": artifacts.uri("triple"), "canaryTrafficPercent": 20}}
        await cluster.patch(MODEL, "cut", change, namespace, manager=MANAGER)
        await crash(write, cluster, target, namespace, tmp_path)
        async with acting(CONTROLLER, cluster, target, namespace, tmp_path, settings):
            split = {"cut-00001": 80, "cut-00002": 20}
            await world.until("cut", lambda found: is_true(found, "Ready") and traffic_of(found) == split, namespace)
        for kind in (SERVICE, CONFIGURATION, ROUTE):
            assert [name_of(one) for one in (await cluster.list(kind, namespace)).items] == ["cut"]
        assert {name_of(one) for one in (await cluster.list(REVISION, namespace)).items} == set(split)
        assert (await world.ask("cut", namespace=namespace)).status == 200
    finally:
        await world.close()


@pytest.mark.fault("K7")
async def test_what_is_deleted_while_no_controller_lives_leaves_nothing(
    cluster: Cluster, target: KubeTarget, namespace: str, artifacts: ArtifactServer, tmp_path: Path
) -> None:
    settings = await settings_of(cluster)
    gateway = f"http://{settings.gateway.address}:{settings.gateway.port}"
    world = World(cluster, gateway, settings.gateway.domain, artifacts.uri, defaults=SMALL, patience=PATIENCE)
    try:
        wanted = model("gone", namespace, storageUri=artifacts.uri("double"), minReplicas=1, **SMALL)
        await cluster.create(MODEL, wanted, manager=MANAGER)
        await crash(1, cluster, target, namespace, tmp_path)

        await world.delete("gone", namespace)
    finally:
        await world.close()
