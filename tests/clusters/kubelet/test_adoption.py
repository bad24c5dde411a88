"""Adoption of an earlier kubelet's processes: running, ended and orphaned ones."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from clusters.base.identity import identify, is_running
from clusters.base.objects import ANNOTATION_PROCESS, POD, condition_of, version_of
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.kubelet import end_leftovers, find_leftovers
from clusters.embedded.kubelet.process.environment import PROCESS_OF, PROCESS_ROLE
from clusters.embedded.kubelet.process.folders import Folders
from clusters.net.endpoints import endpoint_of, is_ready
from tests.clusters.kubelet.nodes import NAMESPACE, Nodes, ended, get, make_pod, process_of, until
from tests.support.wait import eventually

CONTROL_PLANE = Path(__file__).with_name("control_plane.py")


async def test_a_new_kubelet_adopts_a_running_process_without_a_single_write(nodes: Nodes) -> None:
    await nodes.start()
    await nodes.create(make_pod("a"))
    before = await nodes.ready("a")
    await nodes.abandon()

    await nodes.start()

    after = await nodes.ready("a")
    assert version_of(after) == version_of(before)
    assert (await get(after, "/")).startswith(str(process_of(before).pid))


async def test_an_adopted_process_is_observed_probed_and_terminated_like_any_other(nodes: Nodes) -> None:
    await nodes.start()
    await nodes.create(make_pod("a", "--ignore-sigterm", terminationGracePeriodSeconds=0))
    await nodes.ready("a")
    await nodes.create(make_pod("b"))
    b = await nodes.ready("b")
    await nodes.abandon()
    await nodes.start()

    os.kill(process_of(b).pid, signal.SIGKILL)
    await nodes.cluster.delete(POD, "a", NAMESPACE)

    async def restarted() -> bool:
        return await nodes.restarts("b") == 1 and is_ready(await nodes.pod("b"))

    await until(restarted)
    await nodes.gone("a")
    last = (await nodes.container("b"))["lastState"]["terminated"]
    assert (last["exitCode"], last["signal"], last["reason"]) == (137, 9, "Error")


async def test_a_process_that_ended_unobserved_has_an_unknown_exit_status(nodes: Nodes) -> None:
    await nodes.start()
    await nodes.create(make_pod("a", "--child"))
    pod = await nodes.ready("a")
    await nodes.abandon()
    os.kill(process_of(pod).pid, signal.SIGKILL)
    await eventually(lambda: ended(process_of(pod)))

    await nodes.start()

    assert not is_ready(await nodes.pod("a")) or process_of(await nodes.pod("a")) != process_of(pod)
    after = await nodes.ready("a")
    assert await nodes.restarts("a") == 1
    last = (await nodes.container("a"))["lastState"]["terminated"]
    assert last["reason"] == "ContainerStatusUnknown" and "not observed" in last["message"]
    assert (await get(after, "/")).startswith(str(process_of(after).pid))


async def test_a_process_whose_record_was_lost_with_the_kubelet_is_adopted(nodes: Nodes) -> None:
    await nodes.start()
    await nodes.create(make_pod("a"))
    before = await nodes.ready("a")
    await nodes.abandon()
    lost = {"metadata": {"annotations": {ANNOTATION_PROCESS: None}}}
    await nodes.cluster.patch(POD, "a", lost, NAMESPACE, manager="test")

    await nodes.start()

    async def recorded() -> bool:
        return ANNOTATION_PROCESS in (await nodes.pod("a"))["metadata"]["annotations"]

    await until(recorded)
    assert process_of(await nodes.pod("a")) == process_of(before)
    assert await nodes.restarts("a") == 0


async def test_the_kubelet_of_a_copied_folder_starts_its_own_processes(nodes: Nodes, tmp_path: Path) -> None:
    await nodes.start()
    await nodes.create(make_pod("a"))
    original = await nodes.ready("a")
    await nodes.abandon()
    copied, place = nodes.state, tmp_path / "copy"
    shutil.copytree(copied, place)
    nodes.state = place

    await nodes.start()

    async def started() -> bool:
        return await nodes.restarts("a") == 1 and is_ready(await nodes.pod("a"))

    await until(started)
    copy = await nodes.pod("a")
    assert is_running(process_of(original)) and process_of(copy) != process_of(original)
    assert endpoint_of(copy) != endpoint_of(original)
    assert [one.identity for one in find_leftovers(copied)] == [process_of(original)]
    assert [one.identity for one in find_leftovers(place)] == [process_of(copy)]
    end_leftovers(find_leftovers(copied), 0.0)


async def test_a_copy_in_the_place_of_a_moved_folder_does_not_take_its_processes(nodes: Nodes, tmp_path: Path) -> None:
    await nodes.start()
    await nodes.create(make_pod("a"))
    pod = await nodes.ready("a")
    await nodes.abandon()
    moved, place = tmp_path / "moved", nodes.state
    shutil.copytree(place, tmp_path / "copy")
    place.rename(moved)
    (tmp_path / "copy").rename(place)

    assert find_leftovers(place) == []
    assert [one.identity for one in find_leftovers(moved)] == [process_of(pod)]
    end_leftovers(find_leftovers(moved), 0.0)


async def test_a_record_of_another_boot_is_not_adopted(nodes: Nodes) -> None:
    """After a reboot another process may have both the pid and the start time of the record."""
    await nodes.start()
    await nodes.create(make_pod("a"))
    pod = await nodes.ready("a")
    await nodes.abandon()
    record = Folders(nodes.state).record_file(pod["metadata"]["uid"])
    record.write_text(json.dumps(json.loads(record.read_text()) | {"boot": "another"}))

    await nodes.start()

    async def started() -> bool:
        return await nodes.restarts("a") == 1 and is_ready(await nodes.pod("a"))

    await until(started)
    assert process_of(await nodes.pod("a")) != process_of(pod)


async def test_an_orphaned_process_is_killed(nodes: Nodes) -> None:
    await nodes.start()
    await nodes.create(make_pod("a"))
    pod = await nodes.ready("a")
    await nodes.abandon()
    marks = {PROCESS_OF: str(nodes.state), PROCESS_ROLE: "pod"}
    unknown = subprocess.Popen(["sleep", "60"], env=os.environ | marks, start_new_session=True)
    await nodes.cluster.delete(POD, "a", NAMESPACE, grace_period=0)

    await nodes.start()

    assert unknown.wait(5) == -signal.SIGKILL
    await eventually(lambda: ended(process_of(pod)))
    assert list(Folders(nodes.state).pods.iterdir()) == []


async def test_a_child_in_a_session_of_its_own_goes_on_with_its_pod_and_is_killed_without_it(nodes: Nodes) -> None:
    """So runs the engine of a language model."""
    await nodes.start()
    for name in ("a", "b"):
        await nodes.create(make_pod(name, "--child", "--own-session"))
    kept, lost = [identify(int(await get(await nodes.ready(name), "/child"))) for name in ("a", "b")]
    assert kept is not None and lost is not None
    await nodes.abandon()
    os.kill(process_of(await nodes.pod("b")).pid, signal.SIGKILL)

    await nodes.start()

    await eventually(lambda: ended(lost))
    assert is_running(kept)
    await nodes.cluster.delete(POD, "a", NAMESPACE)
    await nodes.gone("a")
    await nodes.abandon()
    await nodes.start()
    await eventually(lambda: ended(kept))


async def test_a_pod_deleted_while_no_kubelet_ran_is_drained_and_terminated(nodes: Nodes) -> None:
    await nodes.start()
    await nodes.create(make_pod("a"))
    pod = await nodes.ready("a")
    await nodes.abandon()
    await nodes.cluster.delete(POD, "a", NAMESPACE)

    await nodes.start()

    await nodes.gone("a")
    assert ended(process_of(pod))
    assert nodes.drained == ["a"]


async def test_stop_all_leaves_no_process_and_the_next_kubelet_starts_the_pods_again(nodes: Nodes) -> None:
    kubelet = await nodes.start()
    for name in ("a", "b"):
        await nodes.create(make_pod(name))
    before = [await nodes.ready(name) for name in ("a", "b")]

    await kubelet.stop_all()

    assert all(ended(process_of(pod)) for pod in before)
    assert sorted(nodes.drained) == ["a", "b"]
    assert find_leftovers(nodes.state) == []
    condition = condition_of(await nodes.pod("a"), "Ready")
    assert condition is not None and (condition["status"], condition["reason"]) == ("False", "NodeShutdown")

    await nodes.abandon()
    await nodes.start()
    for name, pod in zip(("a", "b"), before, strict=True):
        assert process_of(await nodes.ready(name)) != process_of(pod)
        assert await nodes.restarts(name) == 0


async def test_after_a_kill_of_the_control_plane_the_process_continues_and_is_adopted(tmp_path: Path) -> None:
    plane = await _control_plane(tmp_path)
    try:
        pid = int(await _line(plane, "ready"))
    finally:
        plane.kill()
        await plane.wait()
    process = identify(pid)
    assert process is not None and is_running(process)

    second = await _control_plane(tmp_path)
    try:
        assert int(await _line(second, "ready")) == pid
        second.send_signal(signal.SIGTERM)
        assert await second.wait() == 0
    finally:
        end_leftovers(find_leftovers(tmp_path / "state"), 2.0)
    assert not is_running(process)


async def _control_plane(folder: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(sys.executable, str(CONTROL_PLANE), folder, stdout=subprocess.PIPE)


async def _line(process: asyncio.subprocess.Process, word: str) -> str:
    """Return the rest of the next line that begins with `word`."""
    assert process.stdout is not None
    async for line in process.stdout:
        if line.decode().startswith(word):
            return line.decode().removeprefix(word).strip()
    raise AssertionError(f"the control plane exited before it printed {word!r}")


async def test_processes_are_found_and_ended_without_a_kubelet(nodes: Nodes, cluster: EmbeddedCluster) -> None:
    await nodes.start()
    await nodes.create(make_pod("a", "--ignore-sigterm"))
    pod = await nodes.ready("a")
    await nodes.abandon()

    leftovers = find_leftovers(nodes.state)

    assert [(leftover.role, leftover.pod) for leftover in leftovers] == [("pod", pod["metadata"]["uid"])]
    assert "server.py" in str(leftovers[0])
    assert await asyncio.to_thread(end_leftovers, leftovers, 0.05) == []
    assert ended(process_of(pod))
