"""Members of warm pools: Pods without an owner that keep running when their labels and owners change."""

from __future__ import annotations

import asyncio
from typing import Any

from clusters.base.objects import POD, REPLICA_SET, SECRET, Kind, Object, annotations_of, owner_reference, uid_of
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.kubelet.process.folders import Folders
from clusters.net.endpoints import endpoint_of, is_ready
from tests.clusters.kubelet.nodes import NAMESPACE, READINESS, Nodes, get, make_pod, process_of, until
from tests.support.wait import eventually

POOL = "autoscaling.knodel.dev/pool"
HASH = "pod-template-hash"


def member(name: str) -> Object:
    """Return a member: a Pod without an owner and only with the label of its pool."""
    probe = READINESS | {"failureThreshold": 1}
    ports = [{"name": "user-port", "containerPort": 8080}]
    pod = make_pod(name, container={"ports": ports, "readinessProbe": probe})
    pod["metadata"]["labels"] = {POOL: "small"}
    return pod


async def patch(nodes: Nodes, name: str, **metadata: Any) -> Object:
    """Patch a Pod's metadata."""
    return await nodes.cluster.patch(POD, name, {"metadata": metadata}, NAMESPACE, manager="test")


async def test_a_claim_changes_labels_annotations_and_owner_without_a_restart(nodes: Nodes) -> None:
    await nodes.start()
    await nodes.create(member("a"))
    pod = await nodes.ready("a")
    process, endpoint = process_of(pod), endpoint_of(pod)
    owner = {"metadata": {"name": "rs", "namespace": NAMESPACE}, "spec": {"replicas": 0}}
    replica_set = await nodes.cluster.create(REPLICA_SET, owner, manager="test")

    await patch(nodes, "a", annotations={"autoscaling.knodel.dev/claim": "{}"})
    await patch(nodes, "a", labels={"serving.knative.dev/revision": "m-00001"})
    await patch(nodes, "a", labels={HASH: "x", POOL: None}, ownerReferences=[owner_reference(REPLICA_SET, replica_set)])
    assert await get(pod, "/unready")

    async def not_ready() -> bool:
        return not is_ready(await nodes.pod("a"))

    await until(not_ready)  # the kubelet still updates the changed Pod
    after = await nodes.pod("a")
    assert (process_of(after), endpoint_of(after)) == (process, endpoint)
    assert await nodes.restarts("a") == 0
    assert annotations_of(after)["autoscaling.knodel.dev/claim"] == "{}"


async def test_the_working_directory_survives_a_restart(nodes: Nodes) -> None:
    await nodes.start()
    await nodes.create(member("a"))
    pod = await nodes.ready("a")
    assignment = Folders(nodes.state).scratch(uid_of(pod)) / "assignment.json"
    assignment.write_text("{}")

    await asyncio.gather(get(pod, "/crash"), return_exceptions=True)

    async def restarted() -> bool:
        return await nodes.restarts("a") == 1 and is_ready(await nodes.pod("a"))

    await until(restarted)
    assert assignment.read_text() == "{}"
    assert endpoint_of(await nodes.pod("a")) == endpoint_of(pod)


async def test_a_member_without_restart_policy_is_always_restarted(nodes: Nodes) -> None:
    await nodes.start()
    await nodes.create(member("a"))
    pod = await nodes.ready("a")
    await asyncio.gather(get(pod, "/exit/0"), return_exceptions=True)

    async def restarted() -> bool:
        return await nodes.restarts("a") == 1 and is_ready(await nodes.pod("a"))

    await until(restarted)


class SlowSecrets:
    """A cluster that delays reads of Secrets until `release` is set."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.requested = asyncio.Event()
        self.release = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        if kind == SECRET:
            self.requested.set()
            await self.release.wait()
        return await self._cluster.get(kind, name, namespace)


async def test_a_pod_that_is_deleted_before_its_start_gets_no_process(nodes: Nodes, cluster: EmbeddedCluster) -> None:
    """This happens to a new Pod of a ReplicaSet that has adopted another one."""
    slow = SlowSecrets(cluster)
    nodes.cluster = slow
    source = {"secretKeyRef": {"name": "keys", "key": "token", "optional": True}}
    await nodes.start()
    await nodes.create(make_pod("a", container={"env": [{"name": "TOKEN", "valueFrom": source}]}))
    await eventually(slow.requested.is_set)
    pod = await nodes.pod("a")

    await nodes.cluster.delete(POD, "a", NAMESPACE)
    await asyncio.sleep(0.05)  # time for the kubelet to receive the change, which is not observable
    slow.release.set()
    await nodes.gone("a")

    assert not Folders(nodes.state).log(pod, "server").exists()
