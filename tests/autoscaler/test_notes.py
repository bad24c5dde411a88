"""The digest that a revision loaded first, as the autoscaler writes it: once, and never another one."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.apis import LOADED_ANNOTATION, Policy
from autoscaler.config import Records
from autoscaler.reconciler.notes import Notes
from autoscaler.warmpool.marks import ANNOTATION_STARTS
from clusters.embedded.cluster import EmbeddedCluster
from clusters.errors import Conflict, Unavailable
from clusters.objects import POD_AUTOSCALER, Key, Kind, Object, annotations_of
from tests.autoscaler.world import KEY, TEST, World, running
from tests.support.clock import SteppedClock

FIRST, OTHER = (f"sha256:{digit * 64}" for digit in "ab")


class Scene:
    """Notes of one PodAutoscaler of the cluster, over a clock of the test's."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.clock = SteppedClock()
        self.notes = self.another()

    def another(self) -> Notes:
        """Return the notes of a process that has just started."""
        return Notes(self.cluster, self.clock, Records(), TEST)

    async def autoscaler(self) -> Object:
        """Return the PodAutoscaler, which is made first where it is missing."""
        if not (await self.cluster.list(POD_AUTOSCALER)).items:
            metadata = {"name": KEY.name, "namespace": KEY.namespace}
            await self.cluster.create(POD_AUTOSCALER, {"metadata": metadata, "spec": {}}, manager=TEST)
        return await self.cluster.get(POD_AUTOSCALER, KEY.name, KEY.namespace)

    async def recorded(self) -> str:
        """Return the digest on the PodAutoscaler."""
        return annotations_of(await self.autoscaler()).get(LOADED_ANNOTATION, "")


@pytest.fixture
def scene(cluster: EmbeddedCluster) -> Scene:
    return Scene(cluster)


def test_the_first_digest_of_a_revision_is_news_and_no_later_one(scene: Scene) -> None:
    found = [scene.notes.add_digest(KEY, digest) for digest in ("", FIRST, FIRST, OTHER, "")]
    assert found == [False, True, False, False, False]
    assert scene.notes.add_digest(Key("default", "magika-00002"), OTHER)


async def test_the_first_digest_is_written_and_a_later_one_never(scene: Scene) -> None:
    assert await scene.notes.write(await scene.autoscaler()) is None
    assert await scene.recorded() == ""
    for digest in (FIRST, OTHER):
        scene.notes.add_digest(KEY, digest)
        assert await scene.notes.write(await scene.autoscaler()) is None
        assert await scene.recorded() == FIRST


async def test_a_digest_does_not_wait_for_the_interval_between_writes(scene: Scene) -> None:
    scene.notes.add_start(KEY, {"kind": "cold"})
    assert await scene.notes.write(await scene.autoscaler()) is None
    scene.notes.add_start(KEY, {"kind": "warm"})
    assert (await scene.notes.write(await scene.autoscaler()) or 0.0) > 0.0
    scene.notes.add_digest(KEY, FIRST)
    assert await scene.notes.write(await scene.autoscaler()) is None
    assert await scene.recorded() == FIRST
    assert "warm" in annotations_of(await scene.autoscaler())[ANNOTATION_STARTS]


async def test_a_process_that_starts_later_leaves_the_record_as_it_is(scene: Scene) -> None:
    scene.notes.add_digest(KEY, FIRST)
    await scene.notes.write(await scene.autoscaler())
    later = scene.another()
    later.add_digest(KEY, OTHER)
    assert await later.write(await scene.autoscaler()) is None
    assert await scene.recorded() == FIRST


async def test_a_process_whose_view_is_old_does_not_replace_the_record(scene: Scene) -> None:
    old = await scene.autoscaler()
    scene.notes.add_digest(KEY, FIRST)
    await scene.notes.write(old)
    later = scene.another()
    later.add_digest(KEY, OTHER)
    assert await later.write(old) is None
    assert await scene.recorded() == FIRST


async def test_of_two_processes_that_write_at_once_the_second_fails_and_then_finds_the_record(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, get = await scene.autoscaler(), scene.cluster.get
    later = scene.another()
    later.add_digest(KEY, OTHER)

    async def get_then_lose(*arguments: Any) -> Object:
        found = await get(*arguments)
        monkeypatch.undo()
        scene.notes.add_digest(KEY, FIRST)
        await scene.notes.write(view)
        return found

    monkeypatch.setattr(scene.cluster, "get", get_then_lose)
    with pytest.raises(Conflict):
        await later.write(view)
    assert await later.write(view) is None
    assert await scene.recorded() == FIRST


async def test_what_is_to_be_written_beside_it_is_written_though_the_digest_is_there(scene: Scene) -> None:
    old = await scene.autoscaler()
    scene.notes.add_digest(KEY, FIRST)
    await scene.notes.write(old)
    later = scene.another()
    later.add_digest(KEY, OTHER)
    later.add_start(KEY, {"kind": "cold"})
    await later.write(old)
    assert "cold" in annotations_of(await scene.autoscaler())[ANNOTATION_STARTS]
    assert await scene.recorded() == FIRST


async def test_a_digest_that_could_not_be_written_is_written_by_the_next_pass(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch, refused = scene.cluster.patch, [True]

    async def refuse_once(kind: Kind, *arguments: Any, **options: Any) -> Object:
        if refused:
            refused.clear()
            raise Unavailable("no leader")
        return await patch(kind, *arguments, **options)

    monkeypatch.setattr(scene.cluster, "patch", refuse_once)
    scene.notes.add_digest(KEY, FIRST)
    with pytest.raises(Unavailable):
        await scene.notes.write(await scene.autoscaler())
    assert await scene.recorded() == ""
    assert not scene.notes.add_digest(KEY, OTHER)
    await scene.notes.write(await scene.autoscaler())
    assert await scene.recorded() == FIRST


async def test_a_namesake_of_a_revision_that_is_gone_has_a_digest_of_its_own(scene: Scene) -> None:
    scene.notes.add_digest(KEY, FIRST)
    scene.notes.forget(KEY)
    assert scene.notes.add_digest(KEY, OTHER)
    await scene.notes.write(await scene.autoscaler())
    assert await scene.recorded() == OTHER


async def test_the_digest_of_the_first_replica_reaches_the_podautoscaler(cluster: EmbeddedCluster) -> None:
    async with running(World(cluster, SteppedClock())) as world:
        await world.create_revision(Policy())
        world.replicas.digest = FIRST
        await world.start_pod()

        async def recorded() -> str:
            await world.pass_time(1.0)
            return annotations_of(await world.pod_autoscaler()).get(LOADED_ANNOTATION, "")

        await world.until(recorded, FIRST)
        world.replicas.digest = OTHER
        await world.start_pod()
        await world.pass_time(5.0)
        assert await recorded() == FIRST
