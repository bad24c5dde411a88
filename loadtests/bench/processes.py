"""What the processes of a platform cost: proportional memory and processor time, by role."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

PAGE = 1024
TICKS = os.sysconf("SC_CLK_TCK")
GROUP = 2  # field of /proc/PID/stat behind the command's name


def processes_of(state: Path) -> Iterator[tuple[int, str]]:
    """(pid, role) of every process whose command line or environment names the state folder.

    Roles: `platform`, `gateway`, `activator`, `zygote`, `replica`.
    """
    marker = str(state).encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            command = (folder / "cmdline").read_bytes()
            environment = (folder / "environ").read_bytes()
        except OSError:  # ended meanwhile, or somebody else's
            continue
        if marker in command or marker in environment:
            yield int(folder.name), _role(int(folder.name), command)


def members_of(group: int) -> Iterator[int]:
    """Pids of a process group."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        if int(fields[GROUP]) == group:
            yield int(folder.name)


def pss(pid: int) -> int:
    """Proportional set size in bytes; 0 when the process ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * PAGE for line in lines if line.startswith("Pss:")), 0)


def cpu_seconds(pid: int) -> float:
    """User and system time so far; 0 when the process ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_by_role(state: Path) -> dict[str, int]:
    """Role → PSS in bytes."""
    found: dict[str, int] = {}
    for pid, role in processes_of(state):
        found[role] = found.get(role, 0) + pss(pid)
    return found


def cpu_by_pid(state: Path) -> dict[int, float]:
    """Pid → processor seconds."""
    return {pid: cpu_seconds(pid) for pid, _ in processes_of(state)}


def _role(pid: int, command: bytes) -> str:
    if b"zygote" in command:
        return "zygote" if _parent(pid) == 1 or b"zygote" not in _command(_parent(pid)) else "replica"
    for word, role in ((b"envoy", "gateway"), (b"activator", "activator"), (b"serving.server", "replica")):
        if word in command:
            return role
    return "platform"


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 1


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
