"""Warm starts: the ReplicaSet waits for Pods that it is about to adopt instead of creating others."""

from __future__ import annotations

from clusters.base.objects import DEPLOYMENT, POD, SECRET, Object, controller_of, name_of, owner_reference
from tests.clusters.workloads.conftest import NAMESPACE, World, deployment
from tests.clusters.workloads.node import become, stop
from tests.support.wait import eventually


async def warm_pod(world: World, name: str = "warm") -> Object:
    """Create a running pool member with all labels of the Deployment's template except the hash."""
    template = (await world.deployment())["spec"]["template"]["metadata"]
    pool = {"metadata": {"generateName": "pool-", "namespace": NAMESPACE}}  # any existing owner
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
    """Apply the last patch of a claim."""
    (replica_set,) = await world.replica_sets()
    labels = replica_set["spec"]["template"]["metadata"]["labels"]
    patch = {"metadata": {"labels": {**labels, "autoscaling.knodel.dev/pool": None}, "ownerReferences": None}}
    await world.cluster.patch(POD, name_of(pod), patch, NAMESPACE, manager="pool")


async def scaled(world: World, replicas: int) -> None:
    """Wait until the ReplicaSet is scaled and has observed it, as a claim does before the adoption."""

    async def is_scaled() -> bool:
        (replica_set,) = await world.replica_sets()
        seen = (replica_set.get("status") or {}).get("observedGeneration") == replica_set["metadata"]["generation"]
        return bool(replica_set["spec"]["replicas"] == replicas and seen)

    await eventually(is_scaled)


async def test_the_replica_set_waits_for_pending_adoptions_instead_of_creating_pods(world: World) -> None:
    await world.cluster.create(DEPLOYMENT, deployment(replicas=0), manager="test")
    await world.status(lambda status: status.get("observedGeneration") == 1)
    pods = [await warm_pod(world, "warm-1"), await warm_pod(world, "warm-2")]
    await world.scale(3)
    await scaled(world, 3)
    for pod in pods:
        await adopt(world, pod)
    status = await world.status(lambda status: status.get("readyReplicas") == 2)
    assert status["replicas"] == 3
    await world.quiet()
    made = [write for write in world.counting.writes if write[:2] == ("create", "Pod")]
    assert len(made) == 1
    assert sum(verb == "delete" for verb, _, _ in world.counting.writes) == 0


async def test_a_pod_that_is_not_adopted_is_replaced_after_the_timeout(world: World) -> None:
    await world.cluster.create(DEPLOYMENT, deployment(replicas=0), manager="test")
    await world.status(lambda status: status.get("observedGeneration") == 1)
    warm = await warm_pod(world)
    began = world.clock.monotonic()
    await world.scale(1)
    pods = await world.living(2)
    assert world.clock.monotonic() - began > 0.9
    assert any(controller_of(pod) and name_of(pod) != name_of(warm) for pod in pods)


async def test_a_pod_that_ends_before_its_adoption_is_replaced(world: World) -> None:
    await world.cluster.create(DEPLOYMENT, deployment(replicas=0), manager="test")
    await world.status(lambda status: status.get("observedGeneration") == 1)
    warm = await warm_pod(world)
    await world.scale(1)
    await scaled(world, 1)
    await stop(world.cluster, warm)
    (own,) = await world.living(1)
    assert name_of(own) != name_of(warm)


async def test_free_members_and_members_of_other_revisions_are_not_awaited(world: World) -> None:
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
