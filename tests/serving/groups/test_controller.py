"""The controller of groups on a real embedded store; the test is Knative and the kubelet."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clusters.base.clock import SystemClock
from clusters.base.errors import FieldError, NotFound
from clusters.base.objects import EVENT, POD, Object, is_deleting, name_of, uid_of
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.informer import Informers
from clusters.runtime.recorder import Recorder
from serving.groups.controller import COMPONENT, GroupController
from serving.groups.states import read_state
from serving.types.annotations import LABEL_GROUP_ROLE
from serving.types.lifecycle import State
from tests.serving.groups.pods import (
    ENDED,
    LEADER,
    NAMESPACE,
    READY,
    UNSCHEDULABLE,
    leader_pod,
    leader_status,
    set_status,
    workers_in,
)
from tests.support.clusters import embedded_cluster
from tests.support.loops import at_work
from tests.support.wait import eventually


async def end_pods(cluster: EmbeddedCluster, informers: Informers) -> None:
    """The kubelet: Pods that are being deleted end at once."""
    ending: asyncio.Queue[Object] = asyncio.Queue()
    informers[POD].subscribe(lambda _, after: ending.put_nowait(after) if after and is_deleting(after) else None)
    while True:
        pod = await ending.get()
        with contextlib.suppress(NotFound):
            await cluster.delete(POD, name_of(pod), NAMESPACE, uid=uid_of(pod), grace_period=0)


@contextlib.asynccontextmanager
async def controller(cluster: EmbeddedCluster) -> AsyncIterator[None]:
    """The controller and the kubelet at work."""
    clock = SystemClock()
    informers = Informers(cluster, clock, selectors={POD: LABEL_GROUP_ROLE})
    groups = GroupController(cluster, informers, clock=clock, recorder=Recorder(cluster, COMPONENT, clock))
    async with at_work(end_pods(cluster, informers), informers.run(), groups.run()):
        yield


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    """A cluster with the controller."""
    async with embedded_cluster(tmp_path / "cluster.db") as running, controller(running):
        yield running


async def add_leader(cluster: EmbeddedCluster, **workers: Any) -> Object:
    """Knative and the kubelet start a leader."""
    made = await cluster.create(POD, leader_pod(workers), manager="test")
    await set_status(cluster, LEADER, leader_status())
    return made


async def workers_are(cluster: EmbeddedCluster, *names: str, others: frozenset[str] = frozenset()) -> dict[str, Object]:
    """The workers, once there are exactly these, none with a uid of `others`."""

    async def found() -> dict[str, Object]:
        pods = await workers_in(cluster)
        assert sorted(pods) == sorted(names), sorted(pods)
        assert not others & {uid_of(pod) for pod in pods.values()}
        return pods

    return await eventually(found)


async def state_is(cluster: EmbeddedCluster, status: str, *words: str) -> State:
    """The state on the leader's Pod, once it has this status and words."""

    async def found() -> State:
        state = read_state(await cluster.get(POD, LEADER, NAMESPACE))
        assert state is not None and state.status == status, state
        assert all(word in f"{state.reason}: {state.message}" for word in words), state
        return state

    return await eventually(found)


async def all_ready(cluster: EmbeddedCluster) -> dict[str, Object]:
    pods = await workers_are(cluster, "w1", "w2")
    for pod in pods.values():
        await set_status(cluster, name_of(pod), READY)
    await state_is(cluster, "True", "2 of 2 workers are ready")
    return pods


def uids(pods: dict[str, Object]) -> frozenset[str]:
    return frozenset(map(uid_of, pods.values()))


async def test_a_leader_gets_its_workers_and_says_when_they_are_ready(cluster: EmbeddedCluster) -> None:
    await add_leader(cluster)
    pods = await workers_are(cluster, "w1", "w2")
    await state_is(cluster, "Unknown", "0 of 2 workers are ready")
    await set_status(cluster, name_of(pods["w1"]), READY)
    await set_status(cluster, name_of(pods["w2"]), UNSCHEDULABLE)
    await state_is(cluster, "False", "Unschedulable", f"{LEADER}-w2", "0/1 nodes are available")
    await set_status(cluster, name_of(pods["w2"]), READY)
    await state_is(cluster, "True")


async def test_workers_go_with_their_leader(cluster: EmbeddedCluster) -> None:
    await add_leader(cluster)
    await all_ready(cluster)
    await cluster.delete(POD, LEADER, NAMESPACE)

    async def none() -> bool:
        return not (await workers_in(cluster))

    await eventually(none)


async def test_a_lost_worker_restarts_all_and_is_an_event(cluster: EmbeddedCluster) -> None:
    await add_leader(cluster)
    former = uids(await all_ready(cluster))
    await set_status(cluster, f"{LEADER}-w2", ENDED)
    await workers_are(cluster, "w1", "w2", others=former)
    await all_ready(cluster)

    async def told() -> bool:
        events = (await cluster.list(EVENT, NAMESPACE)).items
        assert [(one["reason"], one["involvedObject"]["name"]) for one in events] == [("WorkerLost", LEADER)]
        return "w2 ended: exit code 137: out of memory" in events[0]["message"]

    await eventually(told)


async def test_a_tolerated_loss_replaces_one(cluster: EmbeddedCluster) -> None:
    await add_leader(cluster, onLoss="tolerate")
    former = await all_ready(cluster)
    await set_status(cluster, f"{LEADER}-w2", ENDED)
    pods = await workers_are(cluster, "w1", "w2", others=frozenset({uid_of(former["w2"])}))
    assert uid_of(pods["w1"]) == uid_of(former["w1"])


async def test_a_deleted_worker_is_a_loss_too(cluster: EmbeddedCluster) -> None:
    await add_leader(cluster)
    former = uids(await all_ready(cluster))
    await cluster.delete(POD, f"{LEADER}-w1", NAMESPACE)
    await workers_are(cluster, "w1", "w2", others=former)


async def test_a_leader_that_starts_anew_gets_new_workers(cluster: EmbeddedCluster) -> None:
    await add_leader(cluster, onLoss="tolerate")
    former = uids(await all_ready(cluster))
    await set_status(cluster, LEADER, leader_status(restarts=1))
    await workers_are(cluster, "w1", "w2", others=former)


async def test_a_new_process_takes_over_what_is_there(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path / "cluster.db") as cluster:
        async with controller(cluster):
            await add_leader(cluster)
            former = uids(await all_ready(cluster))
        async with controller(cluster):
            await set_status(cluster, LEADER, leader_status(restarts=0) | {"startTime": "2026-01-01T00:00:00Z"})
            await state_is(cluster, "True")
            assert uids(await workers_in(cluster)) == former


async def test_a_refused_worker_is_named(tmp_path: Path) -> None:
    def refuse(_: Object | None, new: Object) -> list[FieldError]:
        is_worker = new["metadata"].get("labels", {}).get(LABEL_GROUP_ROLE) == "worker"
        return [FieldError("spec", "has no room in the quota")] if is_worker else []

    async with embedded_cluster(tmp_path / "cluster.db", validators={POD: refuse}) as cluster, controller(cluster):
        await add_leader(cluster)
        await state_is(cluster, "False", "WorkerRefused", "has no room in the quota")
