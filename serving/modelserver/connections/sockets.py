"""The two sockets of the server, inherited or bound before heavy imports."""

from __future__ import annotations

import errno
import socket
from typing import Final

import msgspec

from clusters.net.authority import authority
from clusters.net.sockets import BACKLOG, find_inherited
from serving.modelserver.base.errors import CannotListen

FREE_PORT: Final = "stop the process that uses it, or choose another port with {}"
"""The advice for a port that is in use."""


class Sockets(msgspec.Struct, frozen=True):
    """The sockets for clients (`data`) and for the platform (`management`)."""

    data: socket.socket
    management: socket.socket


def bind_or_inherit(inherited: str, host: str, port: int, setting: str) -> socket.socket:
    """Return the inherited socket of this address, or bind a new one. Raises CannotListen.

    `inherited` lists inherited sockets, as LISTEN_FDS does. The embedded kubelet passes sockets; on Kubernetes and with
    `knodel serve` there are none.
    """
    return find_inherited(inherited, host, port) or bind(host, port, setting)


def bind(host: str, port: int, setting: str) -> socket.socket:
    """Return a new listening socket, whose backlog takes connections before they are served.

    Raises CannotListen, whose advice names `setting`.
    """
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except (OSError, UnicodeError) as error:
        sock.close()
        if not isinstance(error, OSError) or isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            problem, setting = f"{host[:80]!r} is not an address of this machine", "HOST"
            advice = "set {} to an address of this machine: 127.0.0.1, or 0.0.0.0 for all of them"
        else:
            problem = f"cannot listen on {authority(host, port)} ({error.strerror})"
            advice = "choose a port from 1024 on with {}" if error.errno == errno.EACCES else FREE_PORT
        raise CannotListen(problem, advice, setting) from error
    return sock
