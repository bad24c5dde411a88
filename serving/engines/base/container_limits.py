"""The limits of this process's container, as its control groups set them (Linux, versions 1 and 2).

The kubelet of one machine makes no control groups. It names the memory limit in the environment.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from clusters.base.quantities import MEMORY_LIMIT

ROOT: Final = Path("/sys/fs/cgroup")
GROUPS: Final = Path("/proc/self/cgroup")
_UNLIMITED: Final = 1 << 60
"""Bytes; version 1 writes the largest multiple of a page below 2^63 for no limit."""

ReadText = Callable[[str], str]
"""Returns the text of a file below the root of the control groups, by its relative path; "" if it cannot be read."""


class ContainerLimits(NamedTuple):
    """Limits of a container: `cpu` in cores and `memory` in bytes, each 0 without a limit."""

    cpu: float = 0.0
    memory: int = 0


def container_limits() -> ContainerLimits:
    """Return the limits of this process's container; no limits where there are no control groups."""

    def read(path: str) -> str:
        with suppress(OSError, UnicodeDecodeError):
            return (ROOT / path).read_text()
        return ""

    groups = ""
    with suppress(OSError, UnicodeDecodeError):
        groups = GROUPS.read_text()
    found = limits_of(groups, read)
    named = memory_limit(os.environ.get(MEMORY_LIMIT, ""))
    return found._replace(memory=min(filter(None, (found.memory, named)), default=0))


def available_cores() -> float:
    """Return the number of cores that this process may use: those of the machine, within the container's limit."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, container_limits().cpu or math.inf)


def limits_of(groups: str, read: ReadText) -> ContainerLimits:
    """Return the limits of a process. Pure.

    `groups` is the text of its /proc/self/cgroup. A limit of a group holds for all groups below it, so the smallest one
    counts. In a container the named folders may be absent, and its own limits are then those of the root.
    """
    cpu: list[float] = []
    memory: list[int] = []
    for line in groups.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        for folder in _folders(group):
            if not controllers:  # version 2
                cpu.append(cpu_v2(read(f"{folder}cpu.max")))
                memory.append(memory_limit(read(f"{folder}memory.max")))
            if "memory" in controllers.split(","):
                memory.append(memory_limit(read(f"memory/{folder}memory.limit_in_bytes")))
            if "cpu" in controllers.split(","):
                below = f"cpu/{folder}cpu.cfs_"
                cpu.append(cpu_v1(read(f"{below}quota_us"), read(f"{below}period_us")))
    return ContainerLimits(min(filter(None, cpu), default=0.0), min(filter(None, memory), default=0))


def memory_limit(text: str) -> int:
    """Return the bytes in memory.max or memory.limit_in_bytes; 0 without a limit."""
    value = _number(text)
    return value if value < _UNLIMITED else 0


def cpu_v2(text: str) -> float:
    """Return the cores in cpu.max, which has `QUOTA PERIOD` in microseconds; 0 without a limit."""
    quota, _, period = text.strip().partition(" ")
    return cpu_v1(quota, period)


def cpu_v1(quota: str, period: str) -> float:
    """Return the cores in cpu.cfs_quota_us and cpu.cfs_period_us; 0 without a limit."""
    spent, of = _number(quota), _number(period)
    return spent / of if of else 0.0


def _number(text: str) -> int:
    """Return the number in a text; 0 for other texts, such as `max` and `-1`."""
    digits = text.strip()
    return int(digits) if digits.isascii() and digits.isdigit() else 0


def _folders(group: str) -> Iterator[str]:
    """Return the relative folders of a group and of all groups above it, each with a slash at the end but the root."""
    path = PurePosixPath(group.lstrip("/"))
    if ".." in path.parts:  # the group is outside of the container's own tree
        path = PurePosixPath()
    for folder in (path, *path.parents):
        yield "" if folder == PurePosixPath() else f"{folder}/"
