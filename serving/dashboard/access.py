"""Access to the dashboard: check users, and give their actions their rights."""

from __future__ import annotations

import getpass
import ipaddress
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from clusters.base.errors import Forbidden
from serving.client.server import Server
from serving.client.state import LocalPlatform
from serving.dashboard.sessions import Session

TABLES: Final = ("tcp", "tcp6")
"""Tables of connections in /proc/net, with the user of each (proc_net(5))."""
ROOT: Final = 0


class Access(Protocol):
    """The rights of one kind of platform."""

    @property
    def takes_token(self) -> bool:
        """Whether users log in with a bearer token instead of a one-time link."""
        ...

    @property
    def user(self) -> str:
        """The name to display of a user who logged in by a link."""
        ...

    def check_peer(self, scope: Mapping[str, Any]) -> None:
        """Check the sender of a request by its connection. Raises Forbidden."""
        ...

    async def log_in(self, token: str) -> Session:
        """Return a new session for a bearer token. Raises Forbidden."""
        ...

    def connect(self, session: Session) -> Server:
        """Return the API server, with the rights of the session. Raises ClientError."""
        ...


class LocalAccess:
    """One machine: the owner of the state folder may do everything, other users of the machine nothing.

    Links and cookies could reach other users of the machine: a link is in the arguments of the browser's process, and a
    browser sends the cookies of this address to all ports of the machine. So only connections of the owner, or of root
    for port forwarding, are accepted.
    """

    takes_token = False

    def __init__(self, state: Path, proc: Path = Path("/proc")) -> None:
        self._state = state
        self._proc = proc
        self.user = _login_name()

    def check_peer(self, scope: Mapping[str, Any]) -> None:
        """Check that the connection is of this user or root, if it comes from this machine. Raises Forbidden."""
        client, server = scope.get("client"), scope.get("server")
        if not client or not server or not _is_loopback(str(client[0])):
            return
        wanted = (int(client[1]), int(server[1]))
        for table in TABLES:
            try:
                text = (self._proc / "net" / table).read_text()
            except OSError:
                continue
            if (user := user_of(text, *wanted)) is not None:
                if user in (os.getuid(), ROOT):
                    return
                raise Forbidden("this dashboard is another user's: `knodel dashboard` opens your own")

    async def log_in(self, token: str) -> Session:
        """Refuse: a token is not a login here. Raises Forbidden."""
        raise Forbidden("log in with a one-time link: `knodel dashboard` prints one")

    def connect(self, session: Session) -> Server:
        """Return the platform, as the command finds it. Raises ClientError."""
        return LocalPlatform.find(self._state)


def user_of(table: str, local_port: int, remote_port: int) -> int | None:
    """Return the user id of the socket with these ports, from the text of /proc/net/tcp; None if it has no row.

    The row of the client's socket is meant: its local port is the client's.
    """
    wanted = (f"{local_port:04X}", f"{remote_port:04X}")
    for line in table.splitlines()[1:]:
        fields = line.split(maxsplit=8)
        if (fields[1][-4:], fields[2][-4:]) == wanted and is_loopback_field(fields[1].partition(":")[0]):
            return int(fields[7])
    return None


def is_loopback_field(text: str) -> bool:
    """Return whether an address in the form of /proc/net/tcp is a loopback address."""
    words = [struct.pack("<I", int(text[index : index + 8], 16)) for index in range(0, len(text), 8)]
    return _is_loopback(str(ipaddress.ip_address(b"".join(words))))


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without an entry in the table of users
        return f"user {os.getuid()}"
