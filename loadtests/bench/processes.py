"""Resource usage of processes from /proc (proc_pid(5)), and the processes of a platform by role."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

KIBIBYTE = 1024
PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")


class Stat(NamedTuple):
    """Fields of /proc/PID/stat: `state` is a letter, `cpu` the user and system time in seconds."""

    state: str
    parent: int
    group: int
    session: int
    cpu: float


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """Usage of one or several processes: bytes of memory, open files, tasks (threads)."""

    memory: int = 0
    files: int = 0
    tasks: int = 0

    def __add__(self, other: ProcessUsage) -> ProcessUsage:
        return ProcessUsage(self.memory + other.memory, self.files + other.files, self.tasks + other.tasks)


def pss(pid: int) -> int:
    """Return the proportional set size in bytes; 0 if the process ended."""
    try:
        lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * KIBIBYTE for line in lines if line.startswith("Pss:")), 0)


def resident(pid: int) -> int:
    """Return the resident set size in bytes. Raises OSError if the process ended."""
    return int((PROC / str(pid) / "statm").read_text().split()[1]) * PAGE


def bytes_of(pid: int, name: str) -> int:
    """Return a field of /proc/PID/status in bytes, 0 for a zombie. Raises OSError if the process ended.

    `VmRSS` is the current resident size, `VmHWM` its maximum, `RssAnon` the size without files.
    """
    lines = (PROC / str(pid) / "status").read_text().splitlines()
    return next((int(line.split()[1]) * KIBIBYTE for line in lines if line.startswith(f"{name}:")), 0)


def files_of(pid: int) -> int:
    """Return the number of open files. Raises OSError if the process ended."""
    return len(list((PROC / str(pid) / "fd").iterdir()))


def tasks_of(pid: int) -> int:
    """Return the number of tasks (threads). Raises OSError if the process ended."""
    return len(list((PROC / str(pid) / "task").iterdir()))


def usage_of(pid: int, memory: Callable[[int], int] = resident) -> ProcessUsage:
    """Return the usage of a process, with this measure of memory; zeros if it ended."""
    try:
        return ProcessUsage(memory(pid), files_of(pid), tasks_of(pid))
    except OSError:
        return ProcessUsage()


def stat_of(pid: int) -> Stat | None:
    """Return the stat of a process; None if there is no such process."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name of the command is in parentheses and may contain any character
    parent, group, session = map(int, fields[1:4])
    return Stat(fields[0], parent, group, session, (int(fields[11]) + int(fields[12])) / TICKS)


def all_stats() -> Iterator[tuple[int, Stat]]:
    """Yield (pid, stat) of all processes, without those that end during the call."""
    for pid in _pids():
        stat = stat_of(pid)
        if stat is not None:
            yield pid, stat


def cpu_seconds(pid: int) -> float:
    """Return user and system time in seconds; 0 if the process ended."""
    stat = stat_of(pid)
    return stat.cpu if stat is not None else 0.0


def members_of(group: int) -> Iterator[int]:
    """Return the pids of a process group."""
    return (pid for pid, stat in all_stats() if stat.group == group)


def processes_of(state: Path) -> Iterator[tuple[int, str]]:
    """Yield (pid, role) of every process whose command line or environment contains the state folder.

    Roles: `platform`, `gateway`, `activator`, `zygote`, `replica`.
    """
    marker = str(state).encode()
    for pid in _pids():
        if pid == os.getpid():
            continue
        try:
            command = (PROC / str(pid) / "cmdline").read_bytes()
            environment = (PROC / str(pid) / "environ").read_bytes()
        except OSError:  # ended, or owned by another user
            continue
        if marker in command or marker in environment:
            yield pid, _role(pid, command)


def memory_by_role(state: Path) -> dict[str, int]:
    """Return the PSS in bytes by role."""
    found: dict[str, int] = {}
    for pid, role in processes_of(state):
        found[role] = found.get(role, 0) + pss(pid)
    return found


def cpu_by_pid(state: Path) -> dict[int, float]:
    """Return the CPU seconds by pid."""
    return {pid: cpu_seconds(pid) for pid, _ in processes_of(state)}


def _pids() -> Iterator[int]:
    return (int(folder.name) for folder in PROC.iterdir() if folder.name.isdigit())


def _role(pid: int, command: bytes) -> str:
    if b"zygote" in command:
        return "zygote" if _parent(pid) == 1 or b"zygote" not in _command(_parent(pid)) else "replica"
    for word, role in ((b"envoy", "gateway"), (b"activator", "activator"), (b"serving.modelserver", "replica")):
        if word in command:
            return role
    return "platform"


def _parent(pid: int) -> int:
    stat = stat_of(pid)
    return stat.parent if stat is not None else 1


def _command(pid: int) -> bytes:
    try:
        return (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""
