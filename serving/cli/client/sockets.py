"""Who listens on a port of this machine, by `/proc`."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clusters.base.identity import PROC

LISTEN = "0A"  # state of a listening socket in /proc/net/tcp (TCP_LISTEN, include/net/tcp_states.h)
LONGEST_COMMAND = 80  # characters that are shown


@dataclass(frozen=True, slots=True)
class Listener:
    """Who has a port: a process, 0 when it is not ours to see, and its command."""

    pid: int
    command: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command})" if self.pid else "a process of another user"


def is_taken(host: str, port: int) -> bool:
    """Whether the platform could not listen there."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the platform does
        try:
            trial.bind((host, port))
            trial.listen()
        except OSError:
            return True
    return False


def listeners(port: int) -> list[Listener]:
    """The processes that listen on a TCP port; none when they are not ours to see."""
    inodes = {inode for table in ("tcp", "tcp6") for inode in listening_inodes(_read(PROC / "net" / table), port)}
    wanted = {f"socket:[{inode}]" for inode in inodes}
    return [Listener(pid, _command(pid)) for pid in _pids() if wanted & set(_open_files(pid))]


def listening_inodes(table: str, port: int) -> list[str]:
    """The inodes of sockets that listen on `port`, in the text of /proc/net/tcp (proc_net(5))."""
    rows = (line.split() for line in table.splitlines()[1:])
    return [row[9] for row in rows if row[3] == LISTEN and int(row[1].rpartition(":")[2], 16) == port]


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())


def _open_files(pid: int) -> Iterator[str]:
    try:
        for entry in (PROC / str(pid) / "fd").iterdir():
            yield str(entry.readlink())
    except OSError:  # ended meanwhile, or of another user
        return


def _command(pid: int) -> str:
    words = _read(PROC / str(pid) / "cmdline").replace("\0", " ").strip()
    return words if len(words) <= LONGEST_COMMAND else words[: LONGEST_COMMAND - 1] + "…"


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # ended meanwhile, or no such table on this machine
        return ""
