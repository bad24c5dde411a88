"""Many conflicts (409): other clients write between each observation and each write of the reconciler (K5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

import pytest

from clusters.base.api import Cluster
from clusters.base.errors import Conflict
from clusters.base.objects import MODEL, SERVICE, Key, Kind, Object, key_of
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.queue import FIRST_DELAY, WorkQueue
from tests.clusters.knative.stage import NAMESPACE
from tests.serving.models import model_object
from tests.serving.reconciler.conftest import USER, ModelStage, platform

STORM = 6
"""Writes of ours to one object that another's comes before."""


class Stormy:
    """A cluster in which another client writes each object just before the reconciler, a number of times."""

    def __init__(self, cluster: EmbeddedCluster, storm: int) -> None:
        self._cluster = cluster
        self._left: Counter[tuple[Kind, Key]] = Counter()
        self._storm = storm
        self.refused = 0
        self.bodies: list[tuple[str, Object]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def apply(self, kind: Kind, obj: Object, **options: Any) -> Object:
        """Apply after the other client's write."""
        self.bodies.append((str(options.get("subresource") or ""), obj))
        await self._shake(kind, key_of(obj), obj)
        try:
            return await self._cluster.apply(kind, obj, **options)
        except Conflict:
            self.refused += 1
            raise

    async def patch(self, kind: Kind, name: str, patch: Mapping[str, Any], namespace: str, **options: Any) -> Object:
        """Patch after the other client's write."""
        self.bodies.append((str(options.get("subresource") or ""), dict(patch)))
        await self._shake(kind, Key(namespace, name), dict(patch))
        try:
            return await self._cluster.patch(kind, name, patch, namespace, **options)
        except Conflict:
            self.refused += 1
            raise

    async def _shake(self, kind: Kind, key: Key, body: Object) -> None:
        """Another's write, which makes a new resourceVersion; what is not there yet cannot be written."""
        if not (body.get("metadata") or {}).get("resourceVersion") or self._left[kind, key] >= self._storm:
            return
        self._left[kind, key] += 1
        label = {"metadata": {"labels": {"shaken": str(self._left[kind, key])}}}
        await self._cluster.patch(kind, key.name, label, key.namespace, manager="another")


@pytest.mark.fault("K5")
async def test_in_a_storm_of_conflicts_all_comes_to_stand_and_nobodys_field_is_lost(guarded: EmbeddedCluster) -> None:
    stormy = Stormy(guarded, STORM)
    async with platform(guarded, seen=cast(Cluster, stormy)) as stage:
        await stage.deploy(model_object())
        await stage.comes_up("magika-00001")
        await stage.traffic_is({"magika-00001": 100})
        await say(stage, SERVICE, "team", "blue")
        await stage.edit({"spec": {"storageUri": "file:///models/v2"}})
        await say(stage, MODEL, "purpose", "demo")
        await stage.comes_up("magika-00002")
        await stage.traffic_is({"magika-00002": 100})
        model = await stage.model_is("True")
        service = await stage.get(SERVICE, "magika")
    assert stormy.refused >= STORM
    assert model["metadata"]["annotations"]["example.org/purpose"] == "demo"
    assert service["metadata"]["annotations"]["example.org/team"] == "blue"
    assert 1 <= int(service["metadata"]["labels"]["shaken"]) <= STORM
    for subresource, body in stormy.bodies:
        assert ("status" in body) == (subresource == "status")
        assert not {"spec", "status"} <= body.keys()


async def say(stage: ModelStage, kind: Kind, name: str, value: str) -> None:
    """Annotate an object as a user."""
    patch = {"metadata": {"annotations": {f"example.org/{name}": value}}}
    await stage.cluster.patch(kind, "magika", patch, NAMESPACE, manager=USER)


@pytest.mark.fault("K5")
async def test_keys_that_failed_together_do_not_come_again_together() -> None:
    queue: WorkQueue[str] = WorkQueue()
    delays = {queue.retry(str(number)) for number in range(20)}
    assert len(delays) > 10
    assert all(0.9 * FIRST_DELAY <= delay <= 1.1 * FIRST_DELAY for delay in delays)
