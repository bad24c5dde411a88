"""Recorded decisions and starts on PodAutoscalers: bounded in number and rate."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.config import Records
from autoscaler.reconciler.decision_recorder import DecisionRecorder
from autoscaler.types import read_entries
from autoscaler.warmpool.claims.marks import ANNOTATION_STARTS
from clusters.base.errors import Unavailable
from clusters.base.objects import POD_AUTOSCALER, Kind, Object
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.informer import Informer
from tests.autoscaler.world import KEY, TEST
from tests.support.clock import SteppedClock


class Scene:
    """A DecisionRecorder for one PodAutoscaler, with the test's clock."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.clock = SteppedClock()
        self.notes = DecisionRecorder(cluster, Informer(cluster, POD_AUTOSCALER), self.clock, Records(), TEST)

    async def write(self) -> float | None:
        """Write the recorded entries; return the seconds to wait."""
        if not (await self.cluster.list(POD_AUTOSCALER)).items:
            metadata = {"name": KEY.name, "namespace": KEY.namespace}
            await self.cluster.create(POD_AUTOSCALER, {"metadata": metadata, "spec": {}}, manager=TEST)
        return await self.notes.write(await self.cluster.get(POD_AUTOSCALER, KEY.name, KEY.namespace))

    async def kinds(self) -> list[str]:
        """Return the kinds of the recorded starts."""
        found = await self.cluster.get(POD_AUTOSCALER, KEY.name, KEY.namespace)
        return [entry["kind"] for entry in read_entries(found, ANNOTATION_STARTS)]


@pytest.fixture
def scene(cluster: EmbeddedCluster) -> Scene:
    return Scene(cluster)


async def test_the_second_write_waits_for_the_interval(scene: Scene) -> None:
    assert await scene.write() is None
    scene.notes.add_start(KEY, {"kind": "cold"})
    assert await scene.write() is None
    scene.notes.add_start(KEY, {"kind": "warm"})
    left = await scene.write()
    assert left is not None and left > 0.0
    assert await scene.kinds() == ["cold"]
    scene.clock.step(left)
    assert await scene.write() is None
    assert await scene.kinds() == ["cold", "warm"]


async def test_what_could_not_be_written_is_written_by_the_next_pass(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch, refused = scene.cluster.patch, [True]

    async def refuse_once(kind: Kind, *arguments: Any, **options: Any) -> Object:
        if refused:
            refused.clear()
            raise Unavailable("no leader")
        return await patch(kind, *arguments, **options)

    monkeypatch.setattr(scene.cluster, "patch", refuse_once)
    scene.notes.add_start(KEY, {"kind": "cold"})
    with pytest.raises(Unavailable):
        await scene.write()
    assert await scene.write() is None
    assert await scene.kinds() == ["cold"]
