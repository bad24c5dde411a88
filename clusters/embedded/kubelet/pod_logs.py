"""Read and follow the logs of Pods, and find the logs of deleted Pods."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from clusters.base.clock import Clock
from clusters.base.objects import Object
from clusters.embedded.kubelet.process.folders import has_ended, log_path, previous_log, read_pod_metadata

CHUNK: Final = 64 * 1024  # bytes read at once
POLL_INTERVAL: Final = 0.25  # s between reads of a followed log


@dataclass(frozen=True, slots=True)
class EndedLog:
    """The log of a deleted Pod: the Pod's name, and the log file of its last process."""

    pod: str
    path: Path


class PodLogReader:
    """Read the logs of the Pods of one state folder."""

    def __init__(self, state_dir: Path, clock: Clock) -> None:
        self._state_dir = state_dir
        self._clock = clock

    def has_previous(self, pod: Object) -> bool:
        """Return whether the Pod's container was restarted, so that there is a log of its previous run."""
        return previous_log(log_path(self._state_dir, pod)).exists()

    async def follow(
        self, pod: Object, *, tail: int | None, follow: bool, previous: bool = False
    ) -> AsyncIterator[bytes]:
        """Yield the last `tail` lines (None: all). With `follow`, also yield new output until the Pod is deleted.

        `previous` selects the log of the container's previous run.
        When the container restarts, a follower gets the rest of the old log and then the new one. After a rotation it
        continues at the start of the truncated file.
        """
        path = log_path(self._state_dir, pod)
        if previous:
            path = previous_log(path)
        file = await asyncio.to_thread(_open, path, tail)
        try:
            while file is not None:
                # Checked before the read, which then returns everything that is ever written to this file.
                ended, replaced = has_ended(path.parent), await asyncio.to_thread(_is_replaced, file, path)
                chunk = await asyncio.to_thread(file.read, CHUNK)
                if chunk:
                    yield chunk
                elif replaced:
                    file.close()
                    file = await asyncio.to_thread(_open, path, None)
                elif not follow or ended:
                    return
                elif await asyncio.to_thread(_is_truncated, file):
                    file.seek(0)
                else:
                    await self._clock.sleep(POLL_INTERVAL)
        finally:
            if file is not None:
                file.close()


def ended_logs(state_dir: Path, namespace: str, labels: Mapping[str, str]) -> list[EndedLog]:
    """Return the logs of the namespace's deleted Pods with these labels, in the order in which they ended."""
    found: list[tuple[float, EndedLog]] = []
    for folder in (state_dir / "logs").glob(f"{namespace}_*"):
        pod = read_pod_metadata(folder) if has_ended(folder) else None
        if pod is None or pod.namespace != namespace or not labels.items() <= dict(pod.labels).items():
            continue
        path = folder / f"{pod.container}.log"
        try:
            found.append((path.stat().st_mtime, EndedLog(pod.name, path)))
        except OSError:
            continue  # removed concurrently
    return [log for _, log in sorted(found, key=lambda one: one[0])]


def last_lines(path: Path, tail: int | None) -> bytes:
    """Return the last `tail` lines of a log (None: all). A missing log is empty."""
    file = _open(path, tail)
    if file is None:
        return b""
    with file:
        return file.read()


def _open(path: Path, tail: int | None) -> BinaryIO | None:
    """Open the file at the start of the last `tail` lines. Return None when it does not exist."""
    try:
        file = path.open("rb", buffering=0)
    except FileNotFoundError:
        return None
    if tail is not None:
        file.seek(_find_tail(file.fileno(), os.fstat(file.fileno()).st_size, tail))
    return file


def _is_replaced(file: BinaryIO, path: Path) -> bool:
    """Return whether `path` is no longer the opened file, but another one or none."""
    try:
        return not os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return True


def _is_truncated(file: BinaryIO) -> bool:
    return os.fstat(file.fileno()).st_size < file.tell()


def _find_tail(descriptor: int, size: int, tail: int) -> int:
    """Return the offset of the last `tail` lines. A newline at the end of the file does not start a line."""
    at, left = size, tail
    while at > 0:
        begin = max(0, at - CHUNK)
        block = os.pread(descriptor, at - begin, begin)
        end = len(block) - 1 if at == size and block.endswith(b"\n") else len(block)
        while (found := block.rfind(b"\n", 0, end)) >= 0:
            left -= 1
            if left <= 0:
                return begin + found + 1 if tail else size
            end = found
        at = begin
    return 0 if tail else size
