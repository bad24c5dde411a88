"""Unix sockets at paths of any length, and the identity of the peer process.

The kernel limits the address of a unix socket to 107 bytes (unix(7)), and the path of a state folder may be longer. An
open folder has the path `/proc/self/fd/N`, so `/proc/self/fd/N/NAME` is a short address of the socket NAME in it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import asyncio

MODE: Final = 0o600  # of a socket: only its owner may connect
BACKLOG: Final = 128  # connections that wait to be accepted
STREAM_LIMIT: Final = 64 * 1024  # bytes in a line of a stream reader, the default of asyncio
_CREDENTIALS: Final = struct.Struct("iII")  # pid, uid, gid: `struct ucred` of unix(7)


class Peer(NamedTuple):
    """The process at the other end; `pid` is 0 when it runs in another PID namespace."""

    pid: int
    uid: int


@contextlib.contextmanager
def short_address(path: Path) -> Iterator[str]:
    """Yield an address of the socket at `path` within the kernel's limit. Raises OSError if its folder is absent."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def listen(path: Path, backlog: int = BACKLOG) -> socket.socket:
    """Return a socket that listens at `path` and replaces a former one; only this user may connect. Raises OSError."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_address(path) as address:
            listener.bind(address)
        path.chmod(MODE)  # before `listen`: no process can connect until then
        listener.listen(backlog)
    except OSError:
        listener.close()
        raise
    return listener


def connect(path: Path, timeout: float | None = None) -> socket.socket:
    """Connect to the socket at `path`; `timeout` (s) bounds each operation. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout)
        with short_address(path) as address:
            connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


async def open_connection(path: Path, limit: int = STREAM_LIMIT) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open streams to the socket at `path`; a line has at most `limit` bytes. Raises OSError."""
    import asyncio  # commands that only connect start faster without it

    with short_address(path) as address:
        return await asyncio.open_unix_connection(address, limit=limit)


async def serve(
    listener: socket.socket,
    handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    limit: int = STREAM_LIMIT,
) -> asyncio.Server:
    """Pass each connection of a socket of `listen` to `handler`; a line has at most `limit` bytes."""
    import asyncio  # as above

    if sys.version_info >= (3, 13):  # by default, it looks at the socket's address, which was that of a closed folder
        return await asyncio.start_unix_server(handler, sock=listener, limit=limit, cleanup_socket=False)
    return await asyncio.start_unix_server(handler, sock=listener, limit=limit)


def peer_of(connection: socket.socket) -> Peer:
    """Return the peer process as recorded by the kernel: the one that connected, or the one that listened."""
    content = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(content)
    return Peer(pid, uid)
