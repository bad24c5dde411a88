"""Reconciling again writes nothing, and a crash between any two writes has no lasting effect."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any, cast

import pytest

from clusters.base.api import Cluster
from clusters.base.clock import SystemClock
from clusters.base.objects import INGRESS, SERVICE, Object
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.store.store import Store
from tests.clusters.knative.conftest import running
from tests.clusters.knative.stage import KNATIVE_KINDS, Stage, service, splits

WRITES_OF_TWO_VERSIONS = 40  # more than the story below takes; then the stand-in does not die at all


async def story(stage: Stage) -> None:
    """Apply two versions, the second with a tag on the first. May be repeated from the start."""
    traffic = [{"latestRevision": True, "percent": 90}, {"revisionName": "magika-00001", "percent": 10, "tag": "old"}]
    if await stage.find(SERVICE, "magika") is None:
        await stage.apply(service())
    await stage.revision_comes_up("magika-00001")
    await stage.apply(service(version="2", traffic=traffic))
    await stage.revision_comes_up("magika-00002")
    wanted = {"magika-00001": 10, "magika-00002": 90}
    await stage.becomes(INGRESS, "magika", lambda found: splits(found, "magika.default.localhost") == wanted)
    await stage.ingress_is_ready("magika")
    await stage.reports(SERVICE, "magika", "True")
    await stage.quiet()


async def test_a_second_pass_over_everything_writes_nothing(cluster: EmbeddedCluster) -> None:
    async with running(cluster) as stage:
        await story(stage)
        before = await stage.versions()
    async with running(cluster) as stage:
        await stage.quiet()
        assert await stage.versions() == before


class Mortal:
    """A cluster for a process that crashes after a number of writes: later ones never return."""

    def __init__(self, cluster: EmbeddedCluster, writes: int) -> None:
        self._cluster = cluster
        self._left = writes
        self.died = asyncio.Event()
        self.get, self.list, self.watch = cluster.get, cluster.list, cluster.watch

    async def create(self, *args: Any, **kwargs: Any) -> Object:
        await self._live()
        return await self._cluster.create(*args, **kwargs)

    async def patch(self, *args: Any, **kwargs: Any) -> Object:
        await self._live()
        return await self._cluster.patch(*args, **kwargs)

    async def delete(self, *args: Any, **kwargs: Any) -> None:
        await self._live()
        await self._cluster.delete(*args, **kwargs)

    async def _live(self) -> None:
        self._left -= 1
        if self._left < 0:
            self.died.set()
            await asyncio.Event().wait()


async def outcome(stage: Stage) -> dict[str, Object]:
    """Return all objects without times, versions and uids."""
    found: dict[str, Object] = {}
    for kind in KNATIVE_KINDS:
        for obj in (await stage.cluster.list(kind)).items:
            conditions = (obj.get("status") or {}).get("conditions", ())
            said = {entry["type"]: (entry["status"], entry.get("reason")) for entry in conditions}
            routing = obj["metadata"].get("labels", {}).get("serving.knative.dev/routingState")
            found[f"{kind} {obj['metadata']['name']}"] = {
                "generation": obj["metadata"]["generation"],
                "conditions": said,
                "routing": routing,
            }
    return found


async def told_with_a_death(path: Path, writes: int) -> dict[str, Object]:
    """Return the outcome when the first process crashes after a number of writes and a second one continues."""
    store = Store.open(path)
    cluster = EmbeddedCluster(store, clock=SystemClock())
    collecting = asyncio.create_task(cluster.run())
    mortal = Mortal(cluster, writes)
    async with running(cluster, seen_as=cast(Cluster, mortal)) as stage:
        telling = asyncio.create_task(story(stage))
        dying = asyncio.create_task(mortal.died.wait())
        await asyncio.wait({telling, dying}, return_when=asyncio.FIRST_COMPLETED)
        for task in (telling, dying):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    async with running(cluster) as stage:
        await story(stage)
        ended = await outcome(stage)
    collecting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await collecting
    await store.close()
    return ended


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Object]:
    """Return the outcome without a crash."""
    path = tmp_path_factory.mktemp("undisturbed") / "cluster.db"
    return asyncio.run(told_with_a_death(path, 10 * WRITES_OF_TWO_VERSIONS))


@pytest.mark.parametrize("writes", range(WRITES_OF_TWO_VERSIONS))
async def test_a_death_after_any_write_changes_nothing_in_the_end(
    tmp_path: Path, writes: int, undisturbed: dict[str, Object]
) -> None:
    assert await told_with_a_death(tmp_path / "cluster.db", writes) == undisturbed
