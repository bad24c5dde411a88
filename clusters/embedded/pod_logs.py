"""Reading the log of a Pod's process: the last lines, then, when asked, each new piece."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from clusters.clock import Clock
from clusters.embedded.kubelet.folders import log_path
from clusters.objects import Object

CHUNK: Final = 64 * 1024  # bytes read at once
LOOK_EVERY: Final = 0.25  # s between two looks at a followed log; only while somebody follows


class PodLogs:
    """The logs below one state folder."""

    def __init__(self, state_dir: Path, clock: Clock) -> None:
        self._state_dir = state_dir
        self._clock = clock

    async def follow(self, pod: Object, *, tail: int | None, follow: bool) -> AsyncIterator[bytes]:
        """The last `tail` lines (None: all), then, with `follow`, each new piece until the log is removed.

        A log that was cut to nothing by rotation is read on from its new beginning.
        """
        path = log_path(self._state_dir, pod)
        position = await asyncio.to_thread(_start_of_tail, path, tail)
        while True:
            chunk, position = await asyncio.to_thread(_read, path, position)
            if chunk:
                yield chunk
            elif not follow or not path.exists():
                return
            else:
                await self._clock.sleep(LOOK_EVERY)


def _read(path: Path, position: int) -> tuple[bytes, int]:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < position:
                position = 0
            file.seek(position)
            chunk = file.read(CHUNK)
    except FileNotFoundError:
        return b"", position
    return chunk, position + len(chunk)


def _start_of_tail(path: Path, tail: int | None) -> int:
    """The offset at which the last `tail` lines begin."""
    if tail is None:
        return 0
    try:
        with path.open("rb") as file:
            return _find_tail(file.fileno(), os.fstat(file.fileno()).st_size, tail)
    except FileNotFoundError:
        return 0


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
