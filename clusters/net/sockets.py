"""TCP ports that are kept for this user, and listening sockets that a child process inherits.

Binding a port does not keep other users of the machine out. With SO_REUSEADDR, another user may bind the same port as
long as neither socket listens, and the first one to listen gets the connections. A server that ends gives its port
away, too. `PortGuard` closes both gaps:

- the guard is a socket that never listens and, once bound, does not allow SO_REUSEADDR: so nobody else can listen,
  although others can still bind;
- it allows SO_REUSEPORT, which Linux grants to sockets of the same user only: so servers of this user listen beside it;
- connections are refused while no server listens, as on any free port.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable
from typing import Final, Self

from clusters.base.errors import AddressInUse

LISTEN_FDS: Final = "KNODEL_LISTEN_FDS"
"""The environment variable that lists the listening sockets a process inherits, as in `5,6`.

It is systemd's LISTEN_FDS with the numbers of the descriptors instead of their count: `subprocess` does not renumber
them. A process finds its sockets by their addresses.
"""

_OTHER_LOOPBACK: Final = {"127.0.0.1": "::1", "0.0.0.0": "::1", "::1": "127.0.0.1"}  # noqa: S104 - not bound

BACKLOG: Final = 4096  # connections that the kernel holds for a server; a thousand callers may come at once


class PortGuard:
    """Keeps one TCP port for the processes of this user until `close`."""

    def __init__(self, guard: socket.socket) -> None:
        self._guard = guard

    @classmethod
    def take(cls, host: str, port: int) -> Self:
        """Take a port on which nobody listens and that nobody guards. Raises OSError when somebody does."""
        with _make_socket(host, socket.SO_REUSEADDR) as proof:  # connections of a former server are no bar
            proof.bind((host, port))
            proof.listen()  # from here on nobody else can, until the guard is there
            proof.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            return cls.join(host, port)

    @classmethod
    def join(cls, host: str, port: int) -> Self:
        """Guard a port on which a server that an earlier guard allowed still listens.

        Raises OSError when another user's server listens there, or one whose socket was not made by `listen`.
        """
        guard = _make_socket(host, socket.SO_REUSEADDR, socket.SO_REUSEPORT)
        try:
            guard.bind((host, port))
            guard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        except OSError:
            guard.close()
            raise
        return cls(guard)

    def listen(self) -> socket.socket:
        """Make a socket that listens on the port from now on; the caller owns it. Raises OSError."""
        address = self._guard.getsockname()
        listener = _make_socket(address[0], socket.SO_REUSEADDR, socket.SO_REUSEPORT)
        try:
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
        return listener

    def close(self) -> None:
        """Give the port up. A server that listens on it goes on."""
        self._guard.close()


def guard_localhost(host: str, port: int, remedy: str) -> PortGuard | None:
    """Keep the port of the other loopback address of the name `localhost`: ::1 if `host` is 127.0.0.1.

    Most clients that connect to `localhost`, or to a name below it, try ::1 first. Whoever listens there would get
    their requests. Returns None where `localhost` is not `host`, and without IPv6. Raises AddressInUse, with `remedy`,
    when another program listens there.
    """
    other = _OTHER_LOOPBACK.get(host)
    try:
        return None if other is None else PortGuard.join(other, port)
    except OSError as error:
        if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return None
        raise AddressInUse(
            f"another program listens on port {port} of {other} ({error.strerror}), where requests to `localhost` go: "
            f"{remedy}"
        ) from error


def listen_environment(descriptors: Iterable[int]) -> dict[str, str]:
    """Return the environment by which a child process finds these listening sockets; empty without any."""
    words = ",".join(map(str, descriptors))
    return {LISTEN_FDS: words} if words else {}


def find_inherited(listen_fds: str, host: str, port: int) -> socket.socket | None:
    """Return the inherited socket that listens on `host:port`, or None when there is none.

    `listen_fds` is the value of the variable LISTEN_FDS. The socket is not inherited further.
    """
    for word in listen_fds.split(","):
        if not word.isdecimal():
            continue
        try:
            found = socket.socket(fileno=int(word))
        except OSError:  # not a socket
            continue
        if found.getsockname()[:2] == (host, port) and found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            os.set_inheritable(found.fileno(), False)
            found.setblocking(False)
            return found
        found.detach()
    return None


def _make_socket(host: str, *options: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    for option in options:
        made.setsockopt(socket.SOL_SOCKET, option, 1)
    return made
