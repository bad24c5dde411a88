"""Bounds of logs: rotation while processes hold their log files open, and removal after Pods have ended.

A process writes straight into its file, so that it goes on when the control plane is gone; a pipe would break. So a
full log is copied and then cut to nothing (all writers append). Lines written in the microseconds between the last
copied byte and the cut are lost, which is the price of `copytruncate` in logrotate, too.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Sequence
from glob import glob
from itertools import count
from pathlib import Path
from typing import Final

from clusters.base.clock import Clock
from clusters.embedded.kubelet.process.folders import ENDED

log = logging.getLogger(__name__)

LARGEST_LOG: Final = 10 << 20  # bytes of one file; as Kubernetes: containerLogMaxSize
KEPT_LOGS: Final = 4  # rotated files beside the present one; as Kubernetes: containerLogMaxFiles is 5 with it
LOOK_EVERY: Final = 10.0  # s; as Kubernetes: containerLogMonitorInterval
KEPT_AFTER_END: Final = 86_400.0  # s that the logs of an ended Pod are kept
LARGEST_ENDED: Final = 100 << 20  # bytes of the logs of all ended Pods together
MOST_ENDED: Final = 500  # ended Pods with logs
REMOVE_EVERY: Final = 6  # looks
POD_LOGS: Final = ("*/*.log",)  # below a node's folder of logs
_CHUNK: Final = 1 << 20  # bytes


class LogRotator:
    """Keeps the files below a folder that match one of the glob `patterns` within bounds."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        *,
        patterns: Sequence[str] = POD_LOGS,
        largest: int = LARGEST_LOG,
        kept: int = KEPT_LOGS,
    ) -> None:
        self._folder = folder
        self._patterns = patterns
        self._clock = clock
        self._largest = largest
        self._kept = kept

    async def run(self) -> None:
        """Look at the logs now and then, until cancelled."""
        for number in count(1):
            await self._clock.sleep(LOOK_EVERY)
            if number % REMOVE_EVERY == 0 and self._patterns == POD_LOGS:
                await asyncio.to_thread(remove_ended, self._folder, self._clock.now().timestamp())
            for pattern in self._patterns:
                names = glob(pattern, root_dir=self._folder)  # noqa: PTH207 - Path.glob raises when a folder goes meanwhile
                for name in sorted(names):
                    await self._look(self._folder / name)

    async def _look(self, path: Path) -> None:
        try:
            if os.stat(path).st_size > self._largest:  # noqa: PTH116 - does not block
                await asyncio.to_thread(rotate, path, self._kept)
        except FileNotFoundError:
            return  # its Pod was deleted
        except OSError as error:
            log.warning("cannot rotate %s: %s", path, error)


def remove_ended(
    folder: Path, now: float, *, age: float = KEPT_AFTER_END, size: int = LARGEST_ENDED, number: int = MOST_ENDED
) -> None:
    """Remove logs of ended Pods, the oldest first: those older than `age` seconds, and what is beyond `size` bytes or
    `number` Pods. `now` is in seconds since 1970.
    """
    ended: list[tuple[float, Path]] = []
    for one in folder.iterdir():
        try:
            ended.append(((one / ENDED).stat().st_mtime, one))
        except OSError:
            continue  # its Pod is there
    taken = 0
    for place, (at, one) in enumerate(sorted(ended, reverse=True)):
        taken += _size(one)
        if now - at > age or taken > size or place >= number:
            shutil.rmtree(one, ignore_errors=True)


def _size(folder: Path) -> int:
    try:
        return sum(file.stat().st_size for file in folder.iterdir())
    except OSError:
        return 0  # somebody else removes it


def rotate(path: Path, kept: int) -> None:
    """`path` → `path.1`, `.1` → `.2` … up to `kept`; the file itself stays, empty. Raises OSError."""
    for number in range(kept - 1, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number + 1}"))
    with path.open("r+b") as present, path.with_name(f"{path.name}.1").open("wb") as copy:
        while chunk := os.read(present.fileno(), _CHUNK):
            copy.write(chunk)
        present.truncate(0)
