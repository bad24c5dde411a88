"""TCP ports that are reserved for this user, and listening sockets that a child process inherits.

Binding a port does not exclude other users of the machine. With SO_REUSEADDR, another user may bind the same port as
long as neither socket listens, and the first one to listen gets the connections. A server that ends also frees its
port. `PortGuard` closes both gaps:

- The guard is a socket that never listens. Once bound, it does not allow SO_REUSEADDR, so other users cannot listen,
  although they can bind.
- It allows SO_REUSEPORT, which Linux restricts to sockets of the same user. So servers of this user can listen.
- Connections are refused while no server listens, as on any free port.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Iterable
from typing import Final, Self

from clusters.base.errors import AddressInUse

LISTEN_FDS: Final = "KNODEL_LISTEN_FDS"
"""The environment variable that lists the listening sockets a process inherits, as in `5,6`.

Unlike systemd's LISTEN_FDS it holds descriptor numbers and not their count, because `subprocess` does not renumber
them. A process finds its sockets by their addresses.
"""

_OTHER_LOOPBACK: Final = {"127.0.0.1": "::1", "0.0.0.0": "::1", "::1": "127.0.0.1"}  # noqa: S104 - not bound

_ESTABLISHED: Final = 1  # TCP_ESTABLISHED of linux/tcp_states.h, in the first byte of struct tcp_info
BACKLOG: Final = 4096  # connections that wait to be accepted; a thousand clients may connect at once


class PortGuard:
    """Reserve a TCP port for the processes of this user until `close`."""

    def __init__(self, guard: socket.socket) -> None:
        self._guard = guard

    @classmethod
    def take(cls, host: str, port: int) -> Self:
        """Guard a free port. Raises OSError when a process listens on it or another user guards it."""
        with _make_socket(host, socket.SO_REUSEADDR) as proof:  # connections of a former server do not prevent it
            proof.bind((host, port))
            proof.listen()  # from here on no other process can, until the guard is bound
            proof.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            return cls.join(host, port)

    @classmethod
    def join(cls, host: str, port: int) -> Self:
        """Guard a port on which a server of an earlier guard still listens.

        Raises OSError when a server of another user listens there, or one whose socket `listen` did not make.
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
        """Return a new socket that listens on the port; the caller must close it. Raises OSError."""
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
        """Release the port. A server that listens on it continues."""
        self._guard.close()


def guard_localhost(host: str, port: int, remedy: str) -> PortGuard | None:
    """Guard the port on the other loopback address of `localhost`: on ::1 if `host` is 127.0.0.1.

    Most clients of `localhost`, or of a name below it, try ::1 first, so a program there would get their requests.
    Returns None where `host` is not a loopback address, and without IPv6. Raises AddressInUse, with `remedy`, when
    another program listens there.
    """
    other = _OTHER_LOOPBACK.get(host)
    try:
        return None if other is None else PortGuard.join(other, port)
    except OSError as error:
        if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return None
        raise AddressInUse(
            f"another program listens on port {port} of {other} ({error.strerror}), where requests to `localhost` go",
            remedy,
        ) from error


def listen_environment(descriptors: Iterable[int]) -> dict[str, str]:
    """Return the environment variable that passes these listening sockets to a child; empty without sockets."""
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


def is_established(transport: asyncio.BaseTransport) -> bool:
    """Return whether neither side has closed the connection, as far as the kernel of this machine knows.

    The kernel knows of a close by the other side even while the transport does not read.
    """
    if transport.is_closing():
        return False
    sock = transport.get_extra_info("socket")
    return bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _ESTABLISHED)


def _make_socket(host: str, *options: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    for option in options:
        made.setsockopt(socket.SOL_SOCKET, option, 1)
    return made
