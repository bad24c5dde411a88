"""One digest for every replica of a revision, that of the first one."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.metrics.stat import Sample
from autoscaler.reconciler.digest_rules import FIRST_BACKOFF
from autoscaler.reconciler.digests import MOUNTED_FOR, SHOWN_FOR, DigestEnforcer
from autoscaler.types import HELD_ANNOTATION, LOADED_ANNOTATION, Policy
from autoscaler.warmpool.claims.marks import DIGESTS_VOLUME
from clusters.base.errors import Conflict, Unavailable
from clusters.base.objects import (
    EVENT,
    POD,
    POD_AUTOSCALER,
    REVISION,
    Kind,
    Object,
    annotations_of,
    is_deleting,
    name_of,
    uid_of,
)
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.informer import Informer
from clusters.runtime.recorder import Recorder
from tests.autoscaler.world import KEY, REVISION_NAME, TEST, Replicas, World, running
from tests.support.clock import SteppedClock
from tests.support.wait import eventually

FIRST, OTHER = (f"sha256:{digit * 64}" for digit in "ab")


class Scene:
    """The DigestEnforcer of one PodAutoscaler, which has one ready Pod."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.clock = SteppedClock()
        self.digests = self.another()

    def another(self) -> DigestEnforcer:
        """Return the enforcer of a new process."""
        recorder = Recorder(self.cluster, TEST, self.clock)
        return DigestEnforcer(
            self.cluster, Informer(self.cluster, POD), Replicas(self.clock), recorder, self.clock, TEST
        )

    async def autoscaler(self) -> Object:
        """Return the PodAutoscaler; create it if it is missing."""
        if not (await self.cluster.list(POD_AUTOSCALER)).items:
            metadata = {"name": KEY.name, "namespace": KEY.namespace}
            await self.cluster.create(POD_AUTOSCALER, {"metadata": metadata, "spec": {}}, manager=TEST)
        return await self.cluster.get(POD_AUTOSCALER, KEY.name, KEY.namespace)

    async def reconcile(self, digests: DigestEnforcer, digest: str, view: Object | None = None) -> None:
        """Pass over the PodAutoscaler when a ready Pod that nobody can delete has reported this digest."""
        digests.observe(KEY, {"default/m-1": Sample(0.0, 0.0, 0.0, 0.0, 0.0, digest=digest)})
        ready = [{"type": "Ready", "status": "True"}]
        pod = {"metadata": {"name": "m-1", "namespace": "default", "uid": "1"}, "status": {"conditions": ready}}
        await digests.reconcile(view or await self.autoscaler(), [pod])

    async def recorded(self) -> str:
        """Return the digest on the PodAutoscaler."""
        return annotations_of(await self.autoscaler()).get(LOADED_ANNOTATION, "")


@pytest.fixture
def scene(cluster: EmbeddedCluster) -> Scene:
    return Scene(cluster)


async def test_the_first_digest_is_written_and_a_later_one_never(scene: Scene) -> None:
    for digest, recorded in (("", ""), (FIRST, FIRST), (OTHER, FIRST)):
        await scene.reconcile(scene.digests, digest)
        assert await scene.recorded() == recorded


async def test_a_process_that_starts_later_or_has_an_old_view_leaves_the_record_as_it_is(scene: Scene) -> None:
    old = await scene.autoscaler()
    await scene.reconcile(scene.digests, FIRST)
    await scene.reconcile(scene.another(), OTHER)
    await scene.reconcile(scene.another(), OTHER, old)
    assert await scene.recorded() == FIRST


async def test_of_two_processes_that_write_at_once_the_second_fails_and_then_finds_the_record(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, get, later = await scene.autoscaler(), scene.cluster.get, scene.another()

    async def get_then_lose(*arguments: Any) -> Object:
        found = await get(*arguments)
        monkeypatch.undo()
        await scene.reconcile(scene.digests, FIRST, view)
        return found

    monkeypatch.setattr(scene.cluster, "get", get_then_lose)
    with pytest.raises(Conflict):
        await scene.reconcile(later, OTHER, view)
    await scene.reconcile(later, OTHER, view)
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
    with pytest.raises(Unavailable):
        await scene.reconcile(scene.digests, FIRST)
    assert await scene.recorded() == ""
    await scene.reconcile(scene.digests, FIRST)
    assert await scene.recorded() == FIRST


async def test_the_record_of_a_namesake_that_is_gone_is_not_taken_over(scene: Scene) -> None:
    view = await scene.autoscaler()
    await scene.cluster.delete(POD_AUTOSCALER, KEY.name, KEY.namespace)
    await scene.autoscaler()
    with pytest.raises(Conflict):
        await scene.reconcile(scene.digests, FIRST, view)
    scene.digests.forget(KEY)
    await scene.reconcile(scene.digests, OTHER)
    assert await scene.recorded() == OTHER


# --- a whole autoscaler ---


async def starting(world: World, digest: str) -> str:
    """Start a Pod that mounts the record, has loaded these files, and is not ready; return its name."""
    pod = await world.start_pod(ready=False)
    patch: Object = {"spec": {"volumes": [{"name": DIGESTS_VOLUME}]}}
    await world.cluster.patch(POD, pod, patch, "default", manager=TEST)
    world.replicas.loads[pod] = digest
    return pod


async def hold(world: World) -> None:
    """Make later Pods mount the record, as the controller of Models does."""
    patch = {"metadata": {"annotations": {HELD_ANNOTATION: FIRST}}}
    await world.cluster.patch(POD_AUTOSCALER, REVISION_NAME, patch, "default", manager="knodel")


async def recorded(world: World) -> str:
    await world.pass_time(0.5, step=0.25)
    return annotations_of(await world.pod_autoscaler()).get(LOADED_ANNOTATION, "")


async def confirmed(world: World) -> set[str]:
    await world.pass_time(0.5, step=0.25)
    return world.replicas.confirmed


async def pods(world: World) -> set[str]:
    await world.pass_time(0.5, step=0.25)
    return {name_of(pod) for pod in (await world.cluster.list(POD, "default")).items if not is_deleting(pod)}


async def events(world: World) -> list[Object]:
    return list((await world.cluster.list(EVENT, "default")).items)


async def test_a_first_replica_is_confirmed_once_its_digest_is_recorded(cluster: EmbeddedCluster) -> None:
    async with running(World(cluster, SteppedClock())) as world:
        await world.create_revision(Policy())
        pod = await starting(world, "")
        await world.pass_time(2.0)
        assert (await recorded(world), await confirmed(world)) == ("", set())
        world.replicas.loads[pod] = FIRST
        await world.until(lambda: confirmed(world), {pod})
        assert await recorded(world) == FIRST


async def test_a_replica_with_other_files_is_never_confirmed_and_deleted_once_the_record_is_mounted(
    cluster: EmbeddedCluster,
) -> None:
    async with running(World(cluster, SteppedClock())) as world:
        await world.create_revision(Policy(max_replicas=4, min_replicas=2))
        first = await starting(world, FIRST)
        await world.until(lambda: confirmed(world), {first})
        second = await starting(world, OTHER)

        await world.until(lambda: started(world), ("False", "DigestMismatch"))
        await world.pass_time(20.0)
        assert await pods(world) == {first, second} and await confirmed(world) == {first}

        await hold(world)
        await world.until(lambda: pods(world), {first})
        [event] = await eventually(lambda: events(world))
        about, revision = event["involvedObject"], await world.get(REVISION, REVISION_NAME)
        assert (about["kind"], about["name"], about["uid"]) == ("Revision", REVISION_NAME, uid_of(revision))
        assert (event["type"], event["reason"]) == ("Warning", "DigestMismatch")
        assert all(word in event["message"] for word in (second, FIRST[:19], OTHER[:19]))


async def started(world: World) -> tuple[str, str]:
    await world.pass_time(0.5, step=0.25)
    return await world.condition("ReplicasStarted")


async def test_pods_with_other_files_are_deleted_ever_more_slowly_and_the_status_has_the_reason(
    cluster: EmbeddedCluster,
) -> None:
    async with running(World(cluster, SteppedClock())) as world:
        await world.create_revision(Policy(max_replicas=4, min_replicas=2))
        first = await starting(world, FIRST)
        await world.until(lambda: confirmed(world), {first})
        await world.set_ready(first, ready=True)
        await hold(world)
        await starting(world, OTHER)
        await world.until(lambda: pods(world), {first})

        second = await starting(world, OTHER)
        await world.until(lambda: started(world), ("False", "DigestMismatch"))
        await world.pass_time(FIRST_BACKOFF - 5.0)
        assert await pods(world) == {first, second}
        await world.until(lambda: pods(world), {first})
        assert await started(world) == ("False", "DigestMismatch")
        await world.pass_time(SHOWN_FOR)
        await world.until(lambda: started(world), ("True", ""))


async def test_a_ready_replica_that_serves_other_files_is_deleted_at_once(cluster: EmbeddedCluster) -> None:
    async with running(World(cluster, SteppedClock())) as world:
        await world.create_revision(Policy(max_replicas=4, min_replicas=2))
        world.replicas.digest = FIRST
        first = await world.start_pod()
        await world.until(lambda: recorded(world), FIRST)
        world.replicas.digests[f"{REVISION_NAME}-2"] = OTHER
        second = await world.start_pod()
        assert second == f"{REVISION_NAME}-2"
        await world.until(lambda: pods(world), {first})
        assert await recorded(world) == FIRST


async def test_a_replica_whose_mount_is_older_than_the_record_is_confirmed_all_the_same(
    cluster: EmbeddedCluster,
) -> None:
    async with running(World(cluster, SteppedClock())) as world:
        annotations = {LOADED_ANNOTATION: FIRST, HELD_ANNOTATION: FIRST}
        await world.create_revision(Policy(), annotations=annotations)
        pod = await starting(world, FIRST)
        await world.pass_time(MOUNTED_FOR / 2, step=0.25)
        assert world.replicas.confirmed == set()  # most Pods mount the record: they are not asked as they start
        await world.until(lambda: confirmed(world), {pod})
