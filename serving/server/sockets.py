"""The server's two sockets, inherited or bound before anything heavy is imported."""

from __future__ import annotations

import socket

import msgspec

from clusters.sockets import BACKLOG, find_inherited
from serving.server.errors import CannotListen


class Sockets(msgspec.Struct, frozen=True):
    """What callers and what the platform connect to."""

    data: socket.socket
    management: socket.socket


def bind_or_inherit(inherited: str, host: str, port: int, setting: str) -> socket.socket:
    """Return the inherited socket for this address (`inherited` lists them, as LISTEN_FDS does), or bind a new one.

    The embedded kubelet passes sockets on; on Kubernetes and by `knodel serve` none are inherited. Raises CannotListen.
    """
    return find_inherited(inherited, host, port) or bind(host, port, setting)


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
