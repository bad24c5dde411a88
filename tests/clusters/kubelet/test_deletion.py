"""Termination of a Pod: not ready, drained, SIGTERM, SIGKILL, cleaned up; also on a full disk."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from pathlib import Path

import pytest

from clusters.base.errors import NotFound
from clusters.base.identity import PROC, session_of
from clusters.base.objects import POD, Object, condition_of
from clusters.embedded.kubelet import find_leftovers
from clusters.embedded.kubelet.container import Container
from clusters.embedded.kubelet.process.folders import Folders, has_ended, log_path
from clusters.net.endpoints import is_ready
from tests.clusters.kubelet.nodes import (
    NAMESPACE,
    READINESS,
    Nodes,
    ended,
    make_pod,
    process_of,
    until,
)
from tests.support.small_disk import full_disk
from tests.support.wait import eventually


async def test_a_deleted_pod_is_unready_then_drained_then_terminated(nodes: Nodes) -> None:
    await nodes.start()
    seen: list[tuple[str, bool]] = []

    async def drain(pod: Object) -> None:
        stored = await nodes.pod("a")
        seen.append((condition_of(stored, "Ready")["status"], ended(process_of(pod))))  # type: ignore[index]

    nodes.drain = drain  # type: ignore[method-assign]
    await nodes.abandon()
    await nodes.start()
    await nodes.create(make_pod("a"))
    pod = await nodes.ready("a")
    folders = Folders(nodes.state)

    await nodes.cluster.delete(POD, "a", NAMESPACE)
    await nodes.gone("a")

    assert seen == [("False", False)]
    assert ended(process_of(pod))
    assert not (folders.pods / pod["metadata"]["uid"]).exists()
    assert has_ended(log_path(nodes.state, pod).parent), "its log is kept for a while"


async def test_a_process_that_ignores_sigterm_is_killed_after_the_grace_period(nodes: Nodes) -> None:
    await nodes.start()
    await nodes.create(make_pod("a", "--ignore-sigterm", "--child", terminationGracePeriodSeconds=1))
    pod = await nodes.ready("a")

    await nodes.cluster.delete(POD, "a", NAMESPACE)
    await nodes.gone("a")

    assert ended(process_of(pod))
    assert not [
        1 for entry in PROC.iterdir() if entry.name.isdigit() and session_of(int(entry.name)) == process_of(pod).pid
    ]


async def test_a_drain_that_hangs_does_not_block_a_deletion(nodes: Nodes) -> None:
    async def drain(pod: Object) -> None:
        await asyncio.get_running_loop().create_future()

    nodes.drain = drain  # type: ignore[method-assign]
    await nodes.start()
    await nodes.create(make_pod("a"))
    await nodes.ready("a")

    await nodes.cluster.delete(POD, "a", NAMESPACE)

    await nodes.gone("a")


async def test_a_pod_removed_by_force_leaves_no_process(nodes: Nodes) -> None:
    await nodes.start()
    await nodes.create(make_pod("a"))
    pod = await nodes.ready("a")

    await nodes.cluster.delete(POD, "a", NAMESPACE, grace_period=0)

    await eventually(lambda: ended(process_of(pod)))
    with pytest.raises(NotFound):
        await nodes.pod("a")
    await eventually(lambda: not Folders(nodes.state).scratch(pod["metadata"]["uid"]).exists())


async def test_a_deleted_pod_is_freed_without_a_run_of_the_garbage_collector(nodes: Nodes) -> None:
    """A large platform collects reference cycles rarely, so cycles of deleted Pods would accumulate."""
    await nodes.start()
    liveness = {"httpGet": READINESS["httpGet"], "periodSeconds": 1}
    gc.disable()
    try:
        await nodes.create(make_pod("a", container={"livenessProbe": liveness}))
        pod = await nodes.ready("a")
        assert _containers(pod)

        await nodes.cluster.delete(POD, "a", NAMESPACE)
        await nodes.gone("a")

        await eventually(lambda: not _containers(pod))
    finally:
        gc.enable()


def _containers(pod: Object) -> list[str]:
    """Return the uid once for each Container of this Pod in memory."""
    uid = pod["metadata"]["uid"]
    return [uid for one in gc.get_objects() if isinstance(one, Container) and one._uid == uid]


async def test_a_drain_that_fails_does_not_block_a_deletion(nodes: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    async def drain(pod: Object) -> None:
        raise ZeroDivisionError("an error of the data plane")

    nodes.drain = drain  # type: ignore[method-assign]
    await nodes.start()
    await nodes.create(make_pod("a"))
    await nodes.ready("a")

    await nodes.cluster.delete(POD, "a", NAMESPACE)
    await nodes.gone("a")

    assert "cannot drain it" in caplog.text


async def test_a_node_with_a_full_disk_stops_all_processes(
    nodes: Nodes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kubelet = await nodes.start()
    await nodes.create(make_pod("well"))
    await nodes.create(make_pod("crashed"))
    await nodes.create(make_pod("deleted", "--ignore-sigterm", terminationGracePeriodSeconds=1))
    before = [await nodes.ready(name) for name in ("well", "crashed", "deleted")]
    await nodes.cluster.delete(POD, "deleted", NAMESPACE)
    await until(lambda: unready(nodes, "deleted"))  # the only remaining write is its removal

    with full_disk(tmp_path / "cluster.db"):
        os.kill(process_of(before[1]).pid, signal.SIGKILL)
        await eventually(lambda: ended(process_of(before[1])))
        async with asyncio.timeout(10):
            await kubelet.stop_all()

    assert all(ended(process_of(pod)) for pod in before)
    assert find_leftovers(nodes.state) == []
    assert {f"pod default/{name}: cannot record its termination" in caplog.text for name in ("well", "deleted")} == {
        True
    }
    assert is_ready(await nodes.pod("well"))
    await nodes.abandon()
    await nodes.start()
    assert process_of(await nodes.ready("well")) != process_of(before[0])
    await nodes.gone("deleted")


async def unready(nodes: Nodes, name: str) -> bool:
    """Return whether the stored Pod is not ready."""
    return not is_ready(await nodes.pod(name))
