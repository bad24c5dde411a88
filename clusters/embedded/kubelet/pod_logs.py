"""Logs of Pods' processes: the last lines, then each new piece; and the logs of Pods that have ended."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from clusters.base.clock import Clock
from clusters.base.objects import Object
from clusters.embedded.kubelet.process.folders import has_ended, log_path, previous_log, read_description

CHUNK: Final = 64 * 1024  # bytes read at once
LOOK_EVERY: Final = 0.25  # s between two looks at a followed log; only while somebody follows


@dataclass(frozen=True, slots=True)
class EndedLog:
    """The log of a Pod that is gone: its name, and the file with the output of its last process."""

    pod: str
    path: Path


class PodLogs:
    """The logs below one state folder."""

    def __init__(self, state_dir: Path, clock: Clock) -> None:
        self._state_dir = state_dir
        self._clock = clock

    def has_previous(self, pod: Object) -> bool:
        """Return whether the Pod's container ran before and was restarted."""
        return previous_log(log_path(self._state_dir, pod)).exists()

    async def follow(
        self, pod: Object, *, tail: int | None, follow: bool, previous: bool = False
    ) -> AsyncIterator[bytes]:
        """Yield the last `tail` lines (None: all), then, with `follow`, each new piece until the Pod has ended.

        A follower gets a log to its last byte before it goes on with the one of a restarted container, and reads one
        that rotation has cut from its new beginning. `previous`: the log of the container's former run.
        """
        path = log_path(self._state_dir, pod)
        if previous:
            path = previous_log(path)
        file = await asyncio.to_thread(_open, path, tail)
        try:
            while file is not None:
                # looked at before the read: what is read then is all that there will ever be in this file
                ending, replaced = has_ended(path.parent), await asyncio.to_thread(_is_replaced, file, path)
                chunk = await asyncio.to_thread(file.read, CHUNK)
                if chunk:
                    yield chunk
                elif replaced:
                    file.close()
                    file = await asyncio.to_thread(_open, path, None)
                elif not follow or ending:
                    return
                elif await asyncio.to_thread(_was_cut, file):
                    file.seek(0)
                else:
                    await self._clock.sleep(LOOK_EVERY)
        finally:
            if file is not None:
                file.close()


def ended_logs(state_dir: Path, namespace: str, labels: Mapping[str, str]) -> list[EndedLog]:
    """Return the logs of ended Pods of the namespace that had these labels, in the order of their ends."""
    found: list[tuple[float, EndedLog]] = []
    for folder in (state_dir / "logs").glob(f"{namespace}_*"):
        known = read_description(folder) if has_ended(folder) else None
        if known is None or known.namespace != namespace or not labels.items() <= dict(known.labels).items():
            continue
        path = folder / f"{known.container}.log"
        try:
            found.append((path.stat().st_mtime, EndedLog(known.name, path)))
        except OSError:
            continue  # it was removed meanwhile
    return [log for _, log in sorted(found, key=lambda one: one[0])]


def last_lines(path: Path, tail: int | None) -> bytes:
    """Return the last `tail` lines of a log (None: all of it), nothing of one that is not there."""
    file = _open(path, tail)
    if file is None:
        return b""
    with file:
        return file.read()


def _open(path: Path, tail: int | None) -> BinaryIO | None:
    """Open the file where the last `tail` lines begin; None when it is not there."""
    try:
        file = path.open("rb", buffering=0)
    except FileNotFoundError:
        return None
    if tail is not None:
        file.seek(_find_tail(file.fileno(), os.fstat(file.fileno()).st_size, tail))
    return file


def _is_replaced(file: BinaryIO, path: Path) -> bool:
    """Return whether another file, or none, is where `file` was opened."""
    try:
        return not os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return True


def _was_cut(file: BinaryIO) -> bool:
    return os.fstat(file.fileno()).st_size < file.tell()


def _find_tail(descriptor: int, size: int, tail: int) -> int:
    """Read backwards until `tail` line ends, not counting the last byte's, were passed."""
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
