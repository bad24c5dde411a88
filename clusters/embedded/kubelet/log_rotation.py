"""Rotate log files that processes hold open, and remove the logs of deleted Pods.

A process writes directly into its log file, because a pipe to the control plane would break when that exits. So a
full log is copied and then truncated; all writers append. Lines written in the microseconds between copy and truncation
are lost, as with `copytruncate` of logrotate.
"""

from __future__ import annotations

import asyncio
import contextlib
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

MAX_LOG_SIZE: Final = 10 << 20  # bytes of one file; containerLogMaxSize of Kubernetes
ROTATED_FILES: Final = 4  # beside the current file, with which containerLogMaxFiles of Kubernetes is 5
MONITOR_INTERVAL: Final = 10.0  # s; containerLogMonitorInterval of Kubernetes
ENDED_MAX_AGE: Final = 86_400.0  # s that the logs of a deleted Pod are kept
ENDED_MAX_SIZE: Final = 100 << 20  # bytes of the logs of all deleted Pods together
ENDED_MAX_PODS: Final = 500  # deleted Pods with logs
REMOVE_EVERY: Final = 6  # monitor intervals
POD_LOGS: Final = ("*/*.log",)  # in the node's folder of logs
_CHUNK: Final = 1 << 20  # bytes


class LogRotator:
    """Rotate the files below a folder that match one of the glob `patterns`.

    A file is rotated when it exceeds `max_size` bytes; `rotated` old files are kept. With the patterns `POD_LOGS`, logs
    of deleted Pods are removed too.
    """

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        *,
        patterns: Sequence[str] = POD_LOGS,
        max_size: int = MAX_LOG_SIZE,
        rotated: int = ROTATED_FILES,
    ) -> None:
        self._folder = folder
        self._patterns = patterns
        self._clock = clock
        self._max_size = max_size
        self._rotated = rotated

    async def run(self) -> None:
        """Check the logs periodically until cancelled."""
        for number in count(1):
            await self._clock.sleep(MONITOR_INTERVAL)
            if number % REMOVE_EVERY == 0 and self._patterns == POD_LOGS:
                await asyncio.to_thread(remove_ended, self._folder, self._clock.now().timestamp())
            for pattern in self._patterns:
                names = glob(pattern, root_dir=self._folder)  # noqa: PTH207 - Path.glob raises when a folder is removed meanwhile
                for name in sorted(names):
                    await self._rotate_if_large(self._folder / name)

    async def _rotate_if_large(self, path: Path) -> None:
        try:
            if os.stat(path).st_size > self._max_size:  # noqa: PTH116 - does not block
                await asyncio.to_thread(rotate, path, self._rotated)
        except FileNotFoundError:
            return  # its Pod was deleted
        except OSError as error:
            log.warning("cannot rotate %s: %s", path, error)


def remove_ended(
    folder: Path, now: float, *, age: float = ENDED_MAX_AGE, size: int = ENDED_MAX_SIZE, number: int = ENDED_MAX_PODS
) -> None:
    """Remove logs of deleted Pods: those older than `age` seconds, and the oldest beyond `size` bytes or `number` Pods.

    `now` is in seconds since 1970.
    """
    ended: list[tuple[float, Path]] = []
    for pod_folder in folder.iterdir():
        try:
            ended.append(((pod_folder / ENDED).stat().st_mtime, pod_folder))
        except OSError:
            continue  # its Pod exists
    total = 0
    for index, (at, pod_folder) in enumerate(sorted(ended, reverse=True)):
        with contextlib.suppress(OSError):  # removed concurrently
            total += sum(file.stat().st_size for file in pod_folder.iterdir())
        if now - at > age or total > size or index >= number:
            shutil.rmtree(pod_folder, ignore_errors=True)


def rotate(path: Path, files: int) -> None:
    """Move `path.1` to `path.2` and so on up to `files`, copy `path` to `path.1`, and truncate it. Raises OSError."""
    for number in range(files - 1, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number + 1}"))
    with path.open("r+b") as present, path.with_name(f"{path.name}.1").open("wb") as copy:
        while chunk := os.read(present.fileno(), _CHUNK):
            copy.write(chunk)
        present.truncate(0)
