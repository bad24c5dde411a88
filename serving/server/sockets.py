"""The server's two sockets, bound before anything heavy is imported."""

from __future__ import annotations

import socket
from typing import Final

import msgspec

from serving.server.errors import CannotListen

BACKLOG: Final = 4096  # connections that the kernel holds for us; a thousand callers may come at once


class Sockets(msgspec.Struct, frozen=True):
    """What callers and what the platform connect to."""

    data: socket.socket
    management: socket.socket


def bind(host: str, port: int, setting: str) -> socket.socket:
    """A socket that takes connections from now on, served or not. Raises CannotListen, which names `setting`."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise CannotListen(f"{host}:{port} cannot be used ({error.strerror}): free it, or set {setting}") from error
    return sock
