"""Deployments, ReplicaSets and Pods on an embedded cluster."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from clusters.base.errors import Conflict, Forbidden, NotFound
from clusters.base.objects import (
    DEPLOYMENT,
    LABEL_TEMPLATE_HASH,
    POD,
    REPLICA_SET,
    Object,
    controller_of,
    key_of,
    labels_of,
    name_of,
)
from tests.clusters.workloads.conftest import NAMESPACE, World, deployment
from tests.clusters.workloads.node import become, bind, stop
from tests.support.wait import eventually


def by_type(status: Object) -> dict[str, Any]:
    return {condition["type"]: condition for condition in status.get("conditions", [])}


async def ready(world: World, number: int) -> list[Object]:
    """Create a Deployment and make its Pods ready on the node."""
    await world.cluster.create(DEPLOYMENT, deployment(replicas=number), manager="test")
    pods = await world.living(number)
    for pod in pods:
        await bind(world.cluster, pod)
        await become(world.cluster, pod, ready=True)
    await world.status(lambda status: status.get("readyReplicas", 0) == number)
    await world.quiet()
    return await world.living(number)


async def test_a_deployment_creates_one_replica_set_with_its_pods(world: World) -> None:
    await world.cluster.create(DEPLOYMENT, deployment(replicas=3), manager="test")
    pods = await world.living(3)
    (replica_set,) = await world.replica_sets()
    hashed = labels_of(replica_set)[LABEL_TEMPLATE_HASH]
    assert name_of(replica_set) == f"iris-00001-deployment-{hashed}"
    for pod in pods:
        assert labels_of(pod)[LABEL_TEMPLATE_HASH] == hashed
        assert labels_of(pod)["app"] == "iris"
        assert pod["metadata"]["annotations"]["a"] == "b"
        owner = controller_of(pod)
        assert owner is not None
        assert owner["uid"] == replica_set["metadata"]["uid"]


async def test_status_follows_the_pods(world: World) -> None:
    await world.cluster.create(DEPLOYMENT, deployment(replicas=2), manager="test")
    one, two = await world.living(2)
    status = await world.status(lambda status: status.get("replicas") == 2)
    assert by_type(status)["Available"]["reason"] == "MinimumReplicasUnavailable"
    await become(world.cluster, one, ready=True)
    status = await world.status(lambda status: status.get("readyReplicas") == 1)
    assert by_type(status)["Progressing"]["reason"] == "ReplicaSetUpdated"
    await become(world.cluster, two, ready=True)
    status = await world.status(lambda status: status.get("availableReplicas") == 2)
    assert by_type(status)["Available"]["status"] == "True"
    assert by_type(status)["Progressing"]["reason"] == "NewReplicaSetAvailable"
    assert status["observedGeneration"] == (await world.deployment())["metadata"]["generation"]
    assert status["updatedReplicas"] == 2
    assert "unavailableReplicas" not in status


async def test_passes_without_a_difference_write_nothing(world: World) -> None:
    await ready(world, 2)
    written = len(world.counting.writes)
    for obj in (*await world.replica_sets(), await world.deployment()):
        await world.workloads.replica_sets.reconcile(key_of(obj))
        await world.workloads.deployments.reconcile(key_of(obj))
    await world.crash()
    await world.start()
    await world.quiet()
    assert world.counting.writes[written:] == []


async def test_a_start_from_zero_takes_few_writes(world: World) -> None:
    await world.cluster.create(DEPLOYMENT, deployment(replicas=0), manager="test")
    await world.status(lambda status: status.get("observedGeneration") == 1)
    await world.quiet()
    written = len(world.counting.writes)
    await world.scale(1)
    (pod,) = await world.living(1)
    await become(world.cluster, pod, ready=True)
    await world.status(lambda status: status.get("availableReplicas") == 1)
    await world.quiet()
    assert len(world.counting.writes) - written <= 6, world.counting.writes[written:]


async def test_scaling_down_deletes_pods_that_are_not_ready_first(world: World) -> None:
    pods = await ready(world, 3)
    await become(world.cluster, pods[1], ready=False)
    await world.status(lambda status: status.get("readyReplicas") == 2)
    await world.scale(2)
    kept = await world.living(2)
    assert {name_of(pod) for pod in kept} == {name_of(pods[0]), name_of(pods[2])}


async def test_a_pod_being_deleted_is_not_a_replica_and_is_not_deleted_twice(world: World) -> None:
    await ready(world, 2)
    await world.scale(1)
    await world.living(1)
    await world.status(lambda status: status.get("replicas") == 1)
    await world.scale(2)
    await world.living(2)
    assert len(await world.pods()) == 3
    await world.quiet()
    assert sum(verb == "delete" for verb, _, _ in world.counting.writes) == 1


async def test_a_deleted_or_failed_pod_is_replaced(world: World) -> None:
    one, two = await ready(world, 2)
    await world.cluster.delete(POD, name_of(one), NAMESPACE, grace_period=0)
    await become(world.cluster, two, ready=False, phase="Failed")

    async def replaced() -> bool:
        names = {name_of(pod) for pod in await world.living(2)}
        return not names & {name_of(one), name_of(two)}

    await eventually(replaced)
    assert await eventually(lambda: _is_deleted(world, name_of(two)))


async def _is_deleted(world: World, name: str) -> bool:
    try:
        return "deletionTimestamp" in (await world.cluster.get(POD, name, NAMESPACE))["metadata"]
    except NotFound:
        return True


async def test_scaling_to_zero_and_back(world: World) -> None:
    (first,) = await ready(world, 1)
    await world.scale(0)
    await world.living(0)
    await stop(world.cluster, first)
    status = await world.status(lambda status: "replicas" not in status)
    assert by_type(status)["Available"]["status"] == "True"
    await world.scale(1)
    (second,) = await world.living(1)
    assert name_of(second) != name_of(first)


async def test_a_matching_pod_without_owner_is_adopted_and_a_pending_pod_is_deleted(world: World) -> None:
    """A claim of a warm Pod scales to N+1 and labels it. The Pod that was created meanwhile is deleted."""
    await ready(world, 1)
    (replica_set,) = await world.replica_sets()
    warm = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "warm", "namespace": NAMESPACE},
        "spec": {"containers": [{"name": "user-container", "image": "server"}], "nodeName": "node"},
    }
    pod = await world.cluster.create(POD, warm, manager="pool")
    await become(world.cluster, pod, ready=True)
    await world.scale(2)
    await world.living(3)
    await world.quiet()
    labels = replica_set["spec"]["template"]["metadata"]["labels"]
    await world.cluster.patch(POD, "warm", {"metadata": {"labels": labels}}, NAMESPACE, manager="pool")
    kept = await world.living(2)
    assert "warm" in {name_of(pod) for pod in kept}
    status = await world.status(lambda status: status.get("readyReplicas") == 2)
    assert status["replicas"] == 2
    adopted = await world.cluster.get(POD, "warm", NAMESPACE)
    owner = controller_of(adopted)
    assert owner is not None
    assert owner["name"] == name_of(replica_set)


async def test_a_pod_that_no_longer_matches_is_released_and_replaced(world: World) -> None:
    one, _ = await ready(world, 2)
    patch = {"metadata": {"labels": {LABEL_TEMPLATE_HASH: None}}}
    await world.cluster.patch(POD, name_of(one), patch, NAMESPACE, manager="test")

    async def released() -> bool:
        pod = await world.cluster.get(POD, name_of(one), NAMESPACE)
        return controller_of(pod) is None

    await eventually(released)
    await world.living(3)


async def test_a_pod_of_another_owner_is_ignored(world: World) -> None:
    await ready(world, 1)
    (replica_set,) = await world.replica_sets()
    reference = {"apiVersion": "v1", "kind": "Secret", "name": "x", "uid": "elsewhere", "controller": True}
    foreign = {
        "metadata": {
            "name": "foreign",
            "namespace": NAMESPACE,
            "labels": replica_set["spec"]["selector"]["matchLabels"],
            "ownerReferences": [reference],
        },
        "spec": {"containers": [], "nodeName": "node"},
    }
    await world.workloads.replica_sets.reconcile(key_of(replica_set))
    pod = await world.cluster.create(POD, {"apiVersion": "v1", "kind": "Pod", **foreign}, manager="test")
    await world.quiet()
    assert controller_of(pod) == reference
    assert (await world.status(lambda status: True)).get("replicas") == 1


async def test_a_crash_at_any_time_creates_no_duplicates(world: World) -> None:
    await world.cluster.create(DEPLOYMENT, deployment(replicas=5), manager="test")
    for turns in range(0, 120, 8):
        for _ in range(turns):
            await asyncio.sleep(0)
        await world.crash()
        await world.settle()
        assert len(await world.pods()) <= 5
        await world.start()
    await world.living(5)
    await world.quiet()
    assert len(await world.pods()) == 5
    assert len(await world.replica_sets()) == 1


async def test_many_passes_on_a_stale_cache_create_no_duplicates(world: World) -> None:
    await world.crash()
    await world.cluster.create(DEPLOYMENT, deployment(replicas=4), manager="test")
    for _ in range(2):  # a pass of the Deployment, then of the ReplicaSet, each on a stale cache
        workloads = await world.frozen()
        for _ in range(10):
            for controller, objects in (
                (workloads.deployments, [await world.deployment()]),
                (workloads.replica_sets, await world.replica_sets()),
            ):
                for obj in objects:
                    with contextlib.suppress(Conflict):  # raised for a status with a stale version
                        await controller.reconcile(key_of(obj))
    assert len(await world.replica_sets()) == 1
    assert sum(write[:2] == ("create", "Pod") for write in world.counting.writes) == 4


async def test_rejected_pods_are_reported_in_the_conditions_and_retried_slowly(world: World) -> None:
    world.counting.refuse_pods = Forbidden("pods are refused: quota exceeded")
    await world.cluster.create(DEPLOYMENT, deployment(replicas=50), manager="test")
    status = await world.status(lambda status: "ReplicaFailure" in by_type(status))
    assert by_type(status)["ReplicaFailure"]["reason"] == "FailedCreate"
    assert "quota exceeded" in by_type(status)["ReplicaFailure"]["message"]
    world.counting.refuse_pods = None
    await world.living(50)
    await world.status(lambda status: "ReplicaFailure" not in by_type(status))


async def test_no_progress_within_the_deadline_is_reported(world: World) -> None:
    await world.cluster.create(DEPLOYMENT, deployment(replicas=1, progressDeadlineSeconds=0), manager="test")
    status = await world.status(
        lambda status: by_type(status).get("Progressing", {}).get("reason") == "ProgressDeadlineExceeded"
    )
    assert by_type(status)["Progressing"]["status"] == "False"
    (pod,) = await world.living(1)
    await become(world.cluster, pod, ready=True)
    status = await world.status(lambda status: status.get("availableReplicas") == 1)
    assert by_type(status)["Progressing"]["reason"] == "NewReplicaSetAvailable"


async def test_a_changed_template_replaces_the_replica_set_once_the_new_one_is_available(world: World) -> None:
    (old,) = await ready(world, 1)
    patch = {"spec": {"template": {"metadata": {"labels": {"app": "other"}}}}}
    await world.cluster.patch(DEPLOYMENT, "iris-00001-deployment", patch, NAMESPACE, manager="test")
    pods = await world.living(2)
    (new,) = [pod for pod in pods if name_of(pod) != name_of(old)]
    await become(world.cluster, new, ready=True)
    (kept,) = await world.living(1)
    assert name_of(kept) == name_of(new)
    await stop(world.cluster, old)

    async def alone() -> bool:
        return len(await world.replica_sets()) == 1

    await eventually(alone)


async def test_deleting_the_deployment_deletes_its_dependents(world: World) -> None:
    await world.cluster.create(DEPLOYMENT, deployment(replicas=2), manager="test")
    pods = await world.living(2)
    await world.cluster.delete(DEPLOYMENT, "iris-00001-deployment", NAMESPACE)
    await world.living(0)
    for pod in pods:
        await stop(world.cluster, pod)

    async def gone() -> bool:
        return not await world.pods() and not await world.replica_sets()

    await eventually(gone)
    await world.quiet()
    assert not await world.pods()


async def test_a_replica_set_name_of_a_deleted_deployment_is_awaited(world: World) -> None:
    await ready(world, 1)
    (replica_set,) = await world.replica_sets()
    await world.cluster.delete(DEPLOYMENT, "iris-00001-deployment", NAMESPACE)
    await world.cluster.create(DEPLOYMENT, deployment(replicas=1), manager="test")

    async def again() -> bool:
        found = await world.replica_sets()
        return len(found) == 1 and found[0]["metadata"]["uid"] != replica_set["metadata"]["uid"]

    await eventually(again)
    assert (await world.cluster.get(REPLICA_SET, name_of(replica_set), NAMESPACE))["spec"]["replicas"] == 1
