"""What processes hold and cost, as /proc says (proc_pid(5)), and which of them are a platform's, by role."""

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
    """Of /proc/PID/stat: `state` is a letter, `cpu` user and system time so far in seconds."""

    state: str
    parent: int
    group: int
    session: int
    cpu: float


@dataclass(frozen=True, slots=True)
class Held:
    """What one process, or several together, hold: bytes of memory, open files, tasks (threads)."""

    memory: int = 0
    files: int = 0
    tasks: int = 0

    def __add__(self, other: Held) -> Held:
        return Held(self.memory + other.memory, self.files + other.files, self.tasks + other.tasks)


def pss(pid: int) -> int:
    """Proportional set size in bytes; 0 when the process ended."""
    try:
        lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * KIBIBYTE for line in lines if line.startswith("Pss:")), 0)


def resident(pid: int) -> int:
    """Resident set size in bytes. Raises OSError when the process ended."""
    return int((PROC / str(pid) / "statm").read_text().split()[1]) * PAGE


def bytes_of(pid: int, name: str) -> int:
    """A line of /proc/PID/status: `VmRSS` is now resident, `VmHWM` the most that ever was, `RssAnon` what is no
    file's; 0 when it has ended and nobody has asked how. Raises OSError as above.
    """
    lines = (PROC / str(pid) / "status").read_text().splitlines()
    return next((int(line.split()[1]) * KIBIBYTE for line in lines if line.startswith(f"{name}:")), 0)


def files_of(pid: int) -> int:
    """How many files it has open. Raises OSError when it ended."""
    return len(list((PROC / str(pid) / "fd").iterdir()))


def tasks_of(pid: int) -> int:
    """How many tasks (threads) it has. Raises OSError when it ended."""
    return len(list((PROC / str(pid) / "task").iterdir()))


def held(pid: int, memory: Callable[[int], int] = resident) -> Held:
    """What the process holds now, its memory by that measure; nothing when it ended."""
    try:
        return Held(memory(pid), files_of(pid), tasks_of(pid))
    except OSError:
        return Held()


def stat_of(pid: int) -> Stat | None:
    """None when there is no such process."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the command's name stands in parentheses and may hold anything
    parent, group, session = map(int, fields[1:4])
    return Stat(fields[0], parent, group, session, (int(fields[11]) + int(fields[12])) / TICKS)


def all_stats() -> Iterator[tuple[int, Stat]]:
    """(pid, its stat) of all processes; who ends meanwhile is left out."""
    for pid in _pids():
        stat = stat_of(pid)
        if stat is not None:
            yield pid, stat


def cpu_seconds(pid: int) -> float:
    """User and system time so far; 0 when the process ended."""
    stat = stat_of(pid)
    return stat.cpu if stat is not None else 0.0


def members_of(group: int) -> Iterator[int]:
    """Pids of a process group."""
    return (pid for pid, stat in all_stats() if stat.group == group)


def processes_of(state: Path) -> Iterator[tuple[int, str]]:
    """(pid, role) of every process whose command line or environment names the state folder.

    Roles: `platform`, `gateway`, `activator`, `zygote`, `replica`.
    """
    marker = str(state).encode()
    for pid in _pids():
        if pid == os.getpid():
            continue
        try:
            command = (PROC / str(pid) / "cmdline").read_bytes()
            environment = (PROC / str(pid) / "environ").read_bytes()
        except OSError:  # ended meanwhile, or somebody else's
            continue
        if marker in command or marker in environment:
            yield pid, _role(pid, command)


def memory_by_role(state: Path) -> dict[str, int]:
    """Role → PSS in bytes."""
    found: dict[str, int] = {}
    for pid, role in processes_of(state):
        found[role] = found.get(role, 0) + pss(pid)
    return found


def cpu_by_pid(state: Path) -> dict[int, float]:
    """Pid → processor seconds."""
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
