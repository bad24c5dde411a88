"""Reading Pod logs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from clusters.clock import SystemClock
from clusters.embedded.kubelet.folders import log_path
from clusters.embedded.pod_logs import PodLogs

POD = {
    "metadata": {"name": "p", "namespace": "default", "uid": "u"},
    "spec": {"containers": [{"name": "server"}]},
}


def write(state: Path, content: bytes) -> Path:
    """The Pod's log file, filled."""
    path = log_path(state, POD)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


async def read(state: Path, tail: int | None) -> bytes:
    """All that a reader who does not follow gets."""
    return b"".join([chunk async for chunk in PodLogs(state, SystemClock()).follow(POD, tail=tail, follow=False)])


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
async def test_the_tail_begins_at_a_line(tmp_path: Path, content: bytes, tail: int | None, expected: bytes) -> None:
    write(tmp_path, content)

    assert await read(tmp_path, tail) == expected


async def test_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert await read(tmp_path, None) == b""


async def test_a_follower_gets_new_lines_also_after_the_log_was_cut(tmp_path: Path) -> None:
    path = write(tmp_path, b"one\n")
    chunks: asyncio.Queue[bytes] = asyncio.Queue()

    async def follow() -> None:
        async for chunk in PodLogs(tmp_path, SystemClock()).follow(POD, tail=None, follow=True):
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
