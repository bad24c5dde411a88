"""Mounts of this machine: listed, and taken down below a folder."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.testbed import commands
from tests.testbed.errors import TestbedError

_TABLE: Final = Path("/proc/self/mountinfo")
_POINT_FIELD: Final = 4  # of a line of proc_pid_mountinfo(5)
_BATCH: Final = 100  # mounts that one command takes down


@dataclass(frozen=True, slots=True)
class Mount:
    """Where something is mounted, and the kind of file system."""

    point: Path
    kind: str


def parse(table: str) -> list[Mount]:
    """The mounts of the text of /proc/PID/mountinfo, in the order in which they were made."""
    found = []
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        found.append(Mount(Path(_plain(before.split()[_POINT_FIELD])), after.split()[0]))
    return found


def listed() -> list[Mount]:
    """What is mounted now."""
    return parse(_TABLE.read_text())


def below(folder: Path) -> list[Path]:
    """The mount points in `folder`, the last made first."""
    return [mount.point for mount in reversed(listed()) if mount.point.is_relative_to(folder)]


def unmount_below(folder: Path) -> None:
    """Take down all mounts in `folder`, also busy ones. Raises TestbedError when some stay."""
    points = below(folder)
    for start in range(0, len(points), _BATCH):
        commands.run("umount", "--lazy", *points[start : start + _BATCH])
    if left := below(folder):
        raise TestbedError(f"{len(left)} mounts stay below {folder}, such as {left[0]}: unmount them")


def _plain(field: str) -> str:
    """Spaces and the like stand as octal numbers in the table."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], base=8)), field)
