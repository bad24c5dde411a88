"""Which process is which: pid and start time together.

A pid alone says nothing after a restart of the control plane: the number may have been given to another process. Pid
and start time (`/proc/PID/stat`, clock ticks since boot) together are unique until the machine restarts. This module
imports little, as the zygote needs it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
_STATE_FIELD: Final = 0  # field 3 of /proc/PID/stat (proc_pid_stat(5)); the list starts behind the command's name
_SESSION_FIELD: Final = 3
_START_TICKS_FIELD: Final = 19
_ENDED_STATES: Final = frozenset("ZXx")  # zombie, dead


@dataclass(frozen=True, slots=True)
class Identity:
    """A process of this boot; `start_ticks` are clock ticks since boot."""

    pid: int
    start_ticks: int


def identify(pid: int) -> Identity | None:
    """The identity of process `pid`, also when it has ended and waits to be reaped; None when there is none."""
    fields = _stat(pid)
    return None if fields is None else Identity(pid, int(fields[_START_TICKS_FIELD]))


def is_running(identity: Identity) -> bool:
    """Whether this very process runs."""
    fields = _stat(identity.pid)
    if fields is None or fields[_STATE_FIELD] in _ENDED_STATES:
        return False
    return int(fields[_START_TICKS_FIELD]) == identity.start_ticks


def session_of(pid: int) -> int:
    """The session (the pid of its leader) of the running process `pid`; 0 when there is none."""
    fields = _stat(pid)
    return 0 if fields is None or fields[_STATE_FIELD] in _ENDED_STATES else int(fields[_SESSION_FIELD])


def kill_group(group: int, number: signal.Signals) -> None:
    """Signal a process group; one without members is no error."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def _stat(pid: int) -> list[str] | None:
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()  # the command's name stands in parentheses and may hold anything
