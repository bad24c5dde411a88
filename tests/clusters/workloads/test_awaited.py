"""Warm starts: the ReplicaSet waits for a Pod that is about to be adopted, and makes none of its own."""

from __future__ import annotations

from clusters.base.objects import DEPLOYMENT, POD, SECRET, Object, controller_of, name_of, owner_reference
from tests.clusters.workloads.conftest import NAMESPACE, World, deployment
from tests.clusters.workloads.node import become, stop
from tests.support.wait import eventually


async def warm_pod(world: World, name: str = "warm") -> Object:
    """A running member of a pool, with all labels of the Deployment's template but the hash: it serves."""
    template = (await world.deployment())["spec"]["template"]["metadata"]
    pool = {"metadata": {"generateName": "pool-", "namespace": NAMESPACE}}  # any owner that is there
    owner = await world.cluster.create(SECRET, pool, manager="pool")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {**template["labels"], "autoscaling.knodel.dev/pool": "p"},
            "ownerReferences": [owner_reference(SECRET, owner)],
        },
        "spec": {"containers": [{"name": "user-container", "image": "server"}], "nodeName": "node"},
    }
    made = await world.cluster.create(POD, pod, manager="pool")
    await become(world.cluster, made, ready=True)
    return made


async def adopt(world: World, pod: Object) -> None:
    """The last patch of a claim."""
    (replica_set,) = await world.replica_sets()
    labels = replica_set["spec"]["template"]["metadata"]["labels"]
    patch = {"metadata": {"labels": {**labels, "autoscaling.knodel.dev/pool": None}, "ownerReferences": None}}
    await world.cluster.patch(POD, name_of(pod), patch, NAMESPACE, manager="pool")


async def room(world: World, replicas: int) -> None:
    """What a claimer waits for before it adopts."""

    async def told() -> bool:
        (replica_set,) = await world.replica_sets()
        seen = (replica_set.get("status") or {}).get("observedGeneration") == replica_set["metadata"]["generation"]
        return bool(replica_set["spec"]["replicas"] == replicas and seen)

    await eventually(told)


async def test_a_pod_that_is_about_to_be_adopted_is_waited_for_instead_of_making_another(world: World) -> None:
    await world.cluster.create(DEPLOYMENT, deployment(replicas=0), manager="test")
    await world.status(lambda status: status.get("observedGeneration") == 1)
    pods = [await warm_pod(world, "warm-1"), await warm_pod(world, "warm-2")]
    await world.scale(3)
    await room(world, 3)
    for pod in pods:
        await adopt(world, pod)
    status = await world.status(lambda status: status.get("readyReplicas") == 2)
    assert status["replicas"] == 3
    await world.quiet()
    made = [write for write in world.counting.writes if write[:2] == ("create", "Pod")]
    assert len(made) == 1
    assert sum(verb == "delete" for verb, _, _ in world.counting.writes) == 0


async def test_a_pod_that_is_never_adopted_is_replaced_after_a_moment(world: World) -> None:
    await world.cluster.create(DEPLOYMENT, deployment(replicas=0), manager="test")
    await world.status(lambda status: status.get("observedGeneration") == 1)
    warm = await warm_pod(world)
    began = world.clock.monotonic()
    await world.scale(1)
    pods = await world.living(2)
    assert world.clock.monotonic() - began > 0.9
    assert any(controller_of(pod) and name_of(pod) != name_of(warm) for pod in pods)


async def test_a_pod_that_is_about_to_be_adopted_and_dies_is_replaced(world: World) -> None:
    await world.cluster.create(DEPLOYMENT, deployment(replicas=0), manager="test")
    await world.status(lambda status: status.get("observedGeneration") == 1)
    warm = await warm_pod(world)
    await world.scale(1)
    await room(world, 1)
    await stop(world.cluster, warm)
    (own,) = await world.living(1)
    assert name_of(own) != name_of(warm)


async def test_free_members_and_those_of_other_revisions_are_not_waited_for(world: World) -> None:
    await world.cluster.create(DEPLOYMENT, deployment(replicas=0), manager="test")
    await world.status(lambda status: status.get("observedGeneration") == 1)
    warm = await warm_pod(world)
    patch = {"metadata": {"labels": {"serving.knative.dev/revisionUID": "another"}}}
    await world.cluster.patch(POD, name_of(warm), patch, NAMESPACE, manager="pool")
    await world.quiet()
    began = world.clock.monotonic()
    await world.scale(1)
    await world.living(2)
    assert world.clock.monotonic() - began < 0.9
