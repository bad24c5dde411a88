"""Identify processes by pid, start time and boot, and folders by device and inode.

After a restart of the control plane, a pid may belong to another process. Pid and start time (`/proc/PID/stat`, clock
ticks since boot) are unique until the machine restarts, so the boot is part of the identity. A path does not identify a
folder: a copy of it has the same records but another inode.
This module imports little because the zygote imports it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

PROC: Final = Path("/proc")
BOOT_ID: Final = PROC / "sys/kernel/random/boot_id"
_STATE_FIELD: Final = 0  # field 3 of /proc/PID/stat (proc_pid_stat(5)); the list starts after the name of the command
_PARENT_FIELD: Final = 1
_SESSION_FIELD: Final = 3
_START_TICKS_FIELD: Final = 19
_DELETED: Final = " (deleted)"  # suffix of a link in /proc to a removed file
_ENDED_STATES: Final = frozenset("ZXx")  # zombie, dead


@cache
def boot_id() -> str:
    """Return the id of the current boot; empty where /proc does not provide it."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def folder_id(folder: Path) -> str:
    """Return `DEVICE:INODE`, which differs between copies of a folder; empty when the folder does not exist."""
    try:
        status = folder.stat()
    except OSError:
        return ""
    return f"{status.st_dev}:{status.st_ino}"


@dataclass(frozen=True, slots=True)
class Identity:
    """A process. `start_ticks` counts clock ticks since the boot `boot`, by default the current one."""

    pid: int
    start_ticks: int
    boot: str = field(default_factory=boot_id)

    def to_json(self) -> dict[str, Any]:
        """Return the identity as a JSON object."""
        return {"pid": self.pid, "startTicks": self.start_ticks, "boot": self.boot}

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> Identity:
        """Return the identity that `to_json` wrote. Raises KeyError, TypeError, ValueError."""
        return cls(int(record["pid"]), int(record["startTicks"]), str(record["boot"]))


NOBODY: Final = Identity(0, 0, "no boot")
"""A process that never runs, for records of another folder."""


def identify(pid: int) -> Identity | None:
    """Return the identity of process `pid`, also of a zombie; None when there is no such process."""
    fields = _stat(pid)
    return None if fields is None else Identity(pid, int(fields[_START_TICKS_FIELD]))


def is_running(identity: Identity) -> bool:
    """Return whether exactly this process runs."""
    if identity.boot != boot_id():
        return False
    fields = _stat(identity.pid)
    if fields is None or fields[_STATE_FIELD] in _ENDED_STATES:
        return False
    return int(fields[_START_TICKS_FIELD]) == identity.start_ticks


def working_folder(pid: int) -> str:
    """Return the `folder_id` of the working folder of a process.

    It is empty when the folder was removed, when the process has ended, and when it belongs to another user.
    """
    link = PROC / str(pid) / "cwd"
    try:
        return "" if str(link.readlink()).endswith(_DELETED) else folder_id(link)
    except OSError:
        return ""


def session_of(pid: int) -> int:
    """Return the session id (the pid of the leader) of the running process `pid`; 0 when it does not run."""
    fields = _stat(pid)
    return 0 if fields is None or fields[_STATE_FIELD] in _ENDED_STATES else int(fields[_SESSION_FIELD])


def parent_of(pid: int) -> int:
    """Return the pid of the parent of the running process `pid`; 0 when it does not run, or has none."""
    fields = _stat(pid)
    return 0 if fields is None or fields[_STATE_FIELD] in _ENDED_STATES else int(fields[_PARENT_FIELD])


def kill_group(group: int, number: signal.Signals) -> None:
    """Send a signal to a process group. A group without members is ignored."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def _stat(pid: int) -> list[str] | None:
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()  # the name of the command is in parentheses and may contain any character
