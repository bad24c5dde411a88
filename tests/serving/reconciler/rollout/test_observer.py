"""The observer, with replicas on real sockets and Pods in a real embedded cluster."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from autoscaler.metrics.pod_http import PodHttpClient
from clusters.base.api import ObjectList
from clusters.base.errors import Unavailable
from clusters.base.objects import ANNOTATION_PORTS, LABEL_REVISION, POD, Kind
from clusters.embedded.cluster import EmbeddedCluster
from clusters.net.endpoints import MANAGEMENT_PORT
from serving.reconciler.rollout.judging.counts import Counts
from serving.reconciler.rollout.judging.observer import MAX_BYTES, PAGE, PodObserver
from tests.autoscaler.pages import Behaviour, Server, answer, hang, pour, serving
from tests.support.clusters import embedded_cluster

OLD, NEW = "m-00001", "m-00002"
TEST = "tester"
NAMESPACE = "default"
TIMEOUT = 0.2  # s


def page(requests: int, errors: int = 0, revision: str = OLD, process: str = "p") -> Behaviour:
    latency = {"-30": requests - errors} if requests > errors else {}
    told = {"revision": revision, "process": process, "requests": requests, "errors": errors, "latency": latency}
    return answer(json.dumps(told).encode(), media_type="application/json")


class Stage:
    """Pods and who answers for them."""

    def __init__(self, cluster: EmbeddedCluster, pages: PodHttpClient, stack: contextlib.AsyncExitStack) -> None:
        self.cluster = cluster
        self.observer = PodObserver(cluster, pages)
        self._stack = stack

    async def replica(self, name: str, behave: Behaviour, revision: str = OLD, phase: str = "Running") -> Server:
        """A Pod whose management port behaves so."""
        server = await self._stack.enter_async_context(serving(behave))
        await self.pod(name, revision, {str(MANAGEMENT_PORT): server.port})
        await self.status(name, phase=phase, podIP=server.host)
        return server

    async def pod(self, name: str, revision: str = OLD, ports: Any = None) -> None:
        """A Pod without an address."""
        metadata = {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {LABEL_REVISION: revision},
            "annotations": {ANNOTATION_PORTS: json.dumps(ports or {})},
        }
        spec = {"containers": [{"name": "server", "image": "server"}]}
        await self.cluster.create(POD, {"metadata": metadata, "spec": spec}, manager=TEST)

    async def status(self, name: str, **status: Any) -> None:
        """The kubelet says so."""
        await self.cluster.patch(POD, name, {"status": status}, NAMESPACE, manager=TEST, subresource="status")

    async def look(self, *revisions: str) -> dict[str, int]:
        """Requests of each revision."""
        seen = await self.observer.read(" ".join(revisions), NAMESPACE, revisions or (OLD, NEW))
        return {revision: counts.requests for revision, counts in seen.items()}


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """An empty stage."""
    pages = PodHttpClient(TIMEOUT)
    async with embedded_cluster(tmp_path / "store.db") as cluster, contextlib.AsyncExitStack() as stack:
        yield Stage(cluster, pages, stack)
        await pages.close()


async def test_what_came_since_the_look_before_is_told_by_revision(stage: Stage) -> None:
    one, other = await stage.replica("a", page(100)), await stage.replica("b", page(5, revision=NEW), NEW)
    assert await stage.look() == {OLD: 0, NEW: 0}
    one.behave, other.behave = page(130, errors=2), page(6, revision=NEW)
    assert await stage.observer.read("", NAMESPACE, (NEW, OLD)) == {
        OLD: Counts(30, 2, {-30: 28}),
        NEW: Counts(1, 0, {-30: 1}),
    }
    assert all(request.startswith(f"GET {PAGE} HTTP/1.1".encode()) for request in (*one.requests, *other.requests))


async def test_a_replica_that_comes_counts_from_its_first_answer_on(stage: Stage) -> None:
    await stage.replica("a", page(100))
    await stage.pod("c")
    await stage.look()
    await stage.replica("b", page(40))
    assert await stage.look() == {OLD: 40}


async def test_a_replica_without_an_address_has_answered_nothing_at_the_first_look(stage: Stage) -> None:
    server = await stage.replica("a", page(7))
    await stage.status("a", podIP=None)
    assert await stage.look() == {}
    await stage.status("a", podIP=server.host)
    assert await stage.look() == {OLD: 7}


async def test_another_rollout_of_the_same_version_begins_anew_and_so_does_one_that_was_left_out(stage: Stage) -> None:
    server = await stage.replica("a", page(100))
    revisions = (OLD, NEW)
    await stage.observer.read("first", NAMESPACE, revisions)
    server.behave = page(900)
    assert await stage.observer.read("second", NAMESPACE, revisions) == {OLD: Counts()}
    stage.observer.forget("first")
    assert await stage.observer.read("first", NAMESPACE, revisions) == {OLD: Counts()}
    server.behave = page(901)
    assert (await stage.observer.read("first", NAMESPACE, revisions))[OLD].requests == 1


@pytest.mark.parametrize(
    "behave",
    [
        hang,
        pour,
        answer(b"", "404 Not Found"),
        answer(b"{}"),
        page(9, revision=NEW),
        answer(b" " * (MAX_BYTES + 1)),
    ],
)
async def test_a_replica_that_does_not_answer_well_is_left_out_and_loses_nothing(
    stage: Stage, behave: Behaviour
) -> None:
    server = await stage.replica("a", page(100))
    await stage.look()
    server.behave = behave
    assert await stage.look() == {}
    server.behave = page(150)
    assert await stage.look() == {OLD: 50}


async def test_a_pod_that_has_ended_is_not_asked(stage: Stage) -> None:
    server = await stage.replica("a", page(3), phase="Failed")
    assert (await stage.look(), server.requests) == ({}, [])


async def test_pods_of_other_revisions_and_namespaces_are_not_asked(stage: Stage) -> None:
    server = await stage.replica("a", page(3, revision="m-00009"), "m-00009")
    assert await stage.look() == {}
    assert await stage.observer.read("", "elsewhere", ("m-00009",)) == {}
    assert server.requests == []


async def test_a_cluster_that_does_not_answer_means_nothing_is_seen_and_nothing_lost(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = await stage.replica("a", page(100))
    await stage.look()

    async def silent(kind: Kind, namespace: str | None = None, selector: str = "") -> ObjectList:
        raise Unavailable("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(stage.cluster, "list", silent)
        assert await stage.look() == {}
    assert "cannot list the Pods of m-00001, m-00002: no answer" in caplog.text
    server.behave = page(101)
    assert await stage.look() == {OLD: 1}
