"""The ports of a platform: its addresses, free ports to suggest, and the processes that listen on a port."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clusters.base.errors import KnodelError
from clusters.base.identity import PROC
from serving.client.state import state_folder
from serving.types.settings.ports import port_options
from serving.types.settings.settings import Settings, load_settings

FIRST, LAST, STEP = 8180, 9980, 100
"""Range of the ports that are suggested for the gateway."""
LISTEN = "0A"  # state of a listening socket in /proc/net/tcp (TCP_LISTEN, include/net/tcp_states.h)
MAX_COMMAND_LENGTH = 80  # characters of a command line in messages


def listen_addresses(settings: Settings) -> tuple[tuple[str, int], ...]:
    """Return the addresses that a platform listens on."""
    gateway, control = settings.gateway, settings.control
    return (gateway.address, gateway.port), (control.address, control.port), (control.address, control.tls_port)


def suggest_ports(state: Path, config: str | None) -> str:
    """Return the remedy for a taken port: a command with free ports, or the settings to change."""
    for port in range(FIRST, LAST, STEP):
        try:
            addresses = listen_addresses(load_settings(Path(config) if config else None, gateway_port=port))
        except KnodelError:
            continue  # the settings use this port for another address
        if not any(is_taken(*address) for address in addresses):
            numbers = [number for _, number in addresses]
            words = ["knodel", "up", "--detach", *port_options(*numbers).split()]
            words += ["--state", str(state)] if state != state_folder(None) else []
            words += ["--config", config] if config else []
            return f"`{shlex.join(words)}` uses the free ports {', '.join(map(str, numbers))}"
    return "stop that process, or change the settings `gateway.port`, `control.port` and `control.tlsPort`"


@dataclass(frozen=True, slots=True)
class Listener:
    """A process that listens on a port, with its command line; pid 0 for a process of another user."""

    pid: int
    command: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command})" if self.pid else "a process of another user"


def is_taken(host: str, port: int) -> bool:
    """Return whether the platform cannot listen at the address."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the platform does
        try:
            trial.bind((host, port))
            trial.listen()
        except OSError:
            return True
    return False


def listeners(port: int) -> list[Listener]:
    """Return the processes that listen on a TCP port, without those of other users."""
    inodes = {inode for table in ("tcp", "tcp6") for inode in listening_inodes(_read(PROC / "net" / table), port)}
    wanted = {f"socket:[{inode}]" for inode in inodes}
    pids = (int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())
    return [Listener(pid, _command_of(pid)) for pid in pids if wanted & set(_open_files(pid))]


def listening_inodes(table: str, port: int) -> list[str]:
    """Return the inodes of sockets that listen on `port`, from the text of /proc/net/tcp (proc_net(5))."""
    rows = (line.split() for line in table.splitlines()[1:])
    return [row[9] for row in rows if row[3] == LISTEN and int(row[1].rpartition(":")[2], 16) == port]


def _open_files(pid: int) -> Iterator[str]:
    try:
        for entry in (PROC / str(pid) / "fd").iterdir():
            yield str(entry.readlink())
    except OSError:  # the process has ended, or is another user's
        return


def _command_of(pid: int) -> str:
    words = _read(PROC / str(pid) / "cmdline").replace("\0", " ").strip()
    return words if len(words) <= MAX_COMMAND_LENGTH else words[: MAX_COMMAND_LENGTH - 1] + "…"


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # the process has ended, or this machine has no such table
        return ""
