"""Replicas of several Pods, kept by the controller of this checkout on real Kubernetes.

Leaders are Pods of the test with a program of its own, since only the controller is under test here: every Pod of a
group ends when something connects to its port `END`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from typing import Any
from urllib.parse import urlsplit

import pytest

from clusters.base.api import Cluster
from clusters.base.errors import NotFound
from clusters.base.objects import EVENT, MODEL, POD, Object, condition_of, labels_of, name_of, uid_of
from clusters.net.endpoints import is_ready
from serving.groups.states import read_state
from serving.types.annotations import ANNOTATION_WORKERS, LABEL_GROUP, LABEL_GROUP_ROLE
from serving.types.lifecycle import State
from serving.types.resources import Resources
from serving.types.settings.settings import Settings
from serving.types.workers import Gang, OnLoss, Workers, to_json
from tests.cluster.place import Place
from tests.support.wait import eventually

END = 9096
PROGRAM = f"""\
import os, signal, socket
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
socket.create_server(('', {END})).accept()
os._exit(1)
"""
"""It ends at SIGTERM, as the model server and its workers do."""
SMALL = Resources("10m", "64Mi")
MANAGER = "tests"
LEADER = "large-00001-deployment-7d4b9-x2x8q"
WITHIN = 90.0  # s for a step
GONE_WITHIN = 10.0  # s from the deletion of a leader until its workers are gone


class Group:
    """A leader, its workers, and what a test does to them."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    async def start(self, image: str, on_loss: OnLoss, gang: Gang | None = None) -> None:
        """Create the leader, and wait until its group is complete."""
        spec = Workers(2, SMALL, on_loss, gang)
        metadata: Object = {
            "name": LEADER,
            "namespace": self.namespace,
            "labels": {LABEL_GROUP_ROLE: "leader", "serving.knative.dev/revision": "large-00001"},
            "annotations": {ANNOTATION_WORKERS: to_json(spec)},
        }
        amounts = SMALL.amounts()
        server = {
            "name": "server", "image": image, "command": ["python", "-c", PROGRAM],
            "resources": {"requests": amounts, "limits": amounts},
        }  # fmt: skip
        made = {"metadata": metadata, "spec": {"containers": [server], "terminationGracePeriodSeconds": 1}}
        await self.cluster.create(POD, {"apiVersion": "v1", "kind": "Pod", **made}, manager=MANAGER)
        await self.is_complete()

    async def leader(self) -> Object:
        return await self.cluster.get(POD, LEADER, self.namespace)

    async def workers(self) -> dict[str, Object]:
        """The workers by the last part of their names."""
        found = (await self.cluster.list(POD, self.namespace, LABEL_GROUP)).items
        return {name_of(pod).rpartition("-")[2]: pod for pod in found}

    async def uids(self) -> dict[str, str]:
        return {name: uid_of(pod) for name, pod in (await self.workers()).items()}

    async def is_complete(self, *, without: frozenset[str] = frozenset()) -> dict[str, str]:
        """Wait until all Pods are ready, none with a uid of `without`; the uids of the workers."""

        async def holds() -> bool:
            state, workers = read_state(await self.leader()), await self.workers()
            assert state is not None and state.status == "True", state
            assert sorted(workers) == ["w1", "w2"] and all(map(is_ready, workers.values()))
            return not without & {uid_of(pod) for pod in workers.values()}

        await eventually(holds, WITHIN)
        return await self.uids()

    async def has_state(self, reason: str) -> State:
        """The state with this reason, once the leader has it."""

        async def holds() -> State | None:
            state = read_state(await self.leader())
            return state if state is not None and state.reason == reason else None

        found = await eventually(holds, WITHIN)
        assert found is not None
        return found

    async def end(self, pod: Object) -> None:
        """Let the program of a Pod end."""
        _, writer = await asyncio.open_connection(pod["status"]["podIP"], END)
        writer.close()


@pytest.fixture
def group(here: Place) -> Group:
    """The group of a namespace with the controllers of this checkout."""
    return Group(here.cluster, here.namespace)


async def test_workers_are_gone_within_seconds_of_their_leader(group: Group, installed: Settings) -> None:
    await group.start(installed.server.image, "restart")
    began = time.monotonic()
    await group.cluster.delete(POD, LEADER, group.namespace)

    async def gone() -> bool:
        return not await group.workers()

    await eventually(gone, GONE_WITHIN)
    assert time.monotonic() - began < GONE_WITHIN


async def test_a_lost_worker_restarts_all_and_is_named(group: Group, installed: Settings) -> None:
    await group.start(installed.server.image, "restart")
    former = await group.uids()
    await group.end((await group.workers())["w2"])
    await group.is_complete(without=frozenset(former.values()))

    events = (await group.cluster.list(EVENT, group.namespace)).items
    [lost] = [one for one in events if one["reason"] == "WorkerLost"]
    assert f"{LEADER}-w2 ended: exit code 1" in lost["message"]


async def test_a_tolerated_loss_leaves_leader_and_others_alone(group: Group, installed: Settings) -> None:
    await group.start(installed.server.image, "tolerate")
    former, leader = await group.uids(), uid_of(await group.leader())
    await group.end((await group.workers())["w2"])
    found = await group.is_complete(without=frozenset({former["w2"]}))
    assert found["w1"] == former["w1"]
    after = await group.leader()
    assert (uid_of(after), is_ready(after)) == (leader, True)


async def test_a_deleted_worker_is_a_loss(group: Group, installed: Settings) -> None:
    await group.start(installed.server.image, "restart")
    former = await group.uids()
    await group.cluster.delete(POD, f"{LEADER}-w1", group.namespace, grace_period=0)
    await group.is_complete(without=frozenset(former.values()))


async def test_a_leader_whose_container_restarts_gets_new_workers(group: Group, installed: Settings) -> None:
    await group.start(installed.server.image, "tolerate")
    former = await group.uids()
    await group.end(await group.leader())
    await group.is_complete(without=frozenset(former.values()))


async def test_a_model_names_the_worker_without_a_node(here: Place) -> None:
    too_large: dict[str, Any] = {"count": 2, "resources": {"cpu": "1000"}}
    host = urlsplit(here.world.artifacts("double")).hostname or ""

    async def told() -> Object:
        found = condition_of(await here.get(MODEL, "large"), "WorkersReady") or {}
        assert found.get("reason") == "Unschedulable", found
        return found

    with socket.create_server((host, 0)) as silent:  # it never answers, so the leader starts and does not end
        uri = f"http://{host}:{silent.getsockname()[1]}/weights/"
        await here.create("large", storageUri=uri, modelFormat="vllm", workers=too_large)
        message = (await eventually(told, WITHIN))["message"]
    assert "0 of 2 workers are ready: " in message and "-w1 is waiting: Unschedulable: 0/1 nodes" in message
    [leader] = (await here.cluster.list(POD, here.namespace, f"{LABEL_GROUP_ROLE}=leader")).items
    pods = (await here.cluster.list(POD, here.namespace, LABEL_GROUP)).items
    assert {labels_of(pod)[LABEL_GROUP] for pod in pods} == {uid_of(leader)}
    with contextlib.suppress(NotFound):
        await here.cluster.delete(MODEL, "large", here.namespace)
