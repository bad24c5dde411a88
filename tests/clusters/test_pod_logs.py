"""Reading the logs of Pods."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from clusters.base.clock import SystemClock
from clusters.embedded.kubelet.pod_logs import PodLogReader, ended_logs, last_lines
from clusters.embedded.kubelet.process.folders import ENDED, Folders, log_path

POD = {
    "metadata": {"name": "p", "namespace": "default", "uid": "u"},
    "spec": {"containers": [{"name": "server"}]},
}


def write(state: Path, content: bytes) -> Path:
    """Write the Pod's log file."""
    path = log_path(state, POD)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


async def read(state: Path, tail: int | None) -> bytes:
    """Return the log without following it."""
    return b"".join([chunk async for chunk in PodLogReader(state, SystemClock()).follow(POD, tail=tail, follow=False)])


@pytest.mark.parametrize(
    ("content", "tail", "expected"),
    [
        (b"a\nb\nc\n", None, b"a\nb\nc\n"),
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc", 2, b"b\nc"),
        (b"a\nb\nc\n", 9, b"a\nb\nc\n"),
        (b"a\nb\nc\n", 0, b""),
        (b"\n\n\n", 1, b"\n"),
        (b"", 3, b""),
        (b"x" * 200_000 + b"\nlast\n", 1, b"last\n"),
        (b"x" * 200_000 + b"\nlast\n", 2, b"x" * 200_000 + b"\nlast\n"),
    ],
)
async def test_the_tail_begins_at_the_start_of_a_line(
    tmp_path: Path, content: bytes, tail: int | None, expected: bytes
) -> None:
    write(tmp_path, content)

    assert await read(tmp_path, tail) == expected


async def test_a_missing_log_is_empty(tmp_path: Path) -> None:
    assert await read(tmp_path, None) == b""


async def test_a_follower_gets_new_lines_also_after_a_rotation(tmp_path: Path) -> None:
    path = write(tmp_path, b"one\n")
    chunks: asyncio.Queue[bytes] = asyncio.Queue()

    async def follow() -> None:
        async for chunk in PodLogReader(tmp_path, SystemClock()).follow(POD, tail=None, follow=True):
            chunks.put_nowait(chunk)

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(follow())
        assert await chunks.get() == b"one\n"
        with path.open("ab") as file:
            file.write(b"two\n")
        assert await chunks.get() == b"two\n"
        path.write_bytes(b"3\n")
        assert await chunks.get() == b"3\n"
        path.unlink()


async def test_a_follower_gets_the_rest_of_a_log_before_that_of_the_restarted_container(tmp_path: Path) -> None:
    path = write(tmp_path, b"one\n")
    logs = PodLogReader(tmp_path, SystemClock())
    assert not logs.has_previous(POD)
    chunks: asyncio.Queue[bytes] = asyncio.Queue()

    async def follow() -> None:
        async for chunk in logs.follow(POD, tail=None, follow=True):
            chunks.put_nowait(chunk)

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(follow())
        assert await chunks.get() == b"one\n"
        with path.open("ab") as file:
            file.write(b"last words\n")
        Folders(tmp_path).keep_previous_log(POD, "server")
        path.write_bytes(b"a longer beginning than what was there\n")
        assert await chunks.get() == b"last words\n"
        assert await chunks.get() == b"a longer beginning than what was there\n"
        (path.parent / ENDED).touch()  # the Pod is deleted, its log is kept

    former = [chunk async for chunk in logs.follow(POD, tail=1, follow=False, previous=True)]
    assert (logs.has_previous(POD), former) == (True, [b"last words\n"])


def test_the_logs_of_deleted_pods_are_found_by_labels_in_the_order_in_which_they_ended(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    folders.prepare()
    for number, (name, namespace, model) in enumerate(
        [
            ("late", "default", "a"),
            ("early", "default", "a"),
            ("b", "default", "b"),
            ("c", "other", "a"),
            ("d", "default", "a"),
        ]
    ):
        metadata = {"name": name, "namespace": namespace, "uid": name, "labels": {"model": model}}
        pod = {"metadata": metadata, "spec": {"containers": [{"name": "server"}]}}
        folders.prepare_pod(pod)
        folders.log(pod, "server").write_text(f"of {name}\n")
        os.utime(folders.log(pod, "server"), (0, 9 - number))
        if name != "d":
            folders.remove_pod(pod)
            assert not folders.scratch(name).exists()

    found = ended_logs(tmp_path, "default", {"model": "a"})

    assert [one.pod for one in found] == ["early", "late"]
    assert last_lines(found[0].path, None) == b"of early\n"
    assert last_lines(tmp_path / "nothing", None) == b""
