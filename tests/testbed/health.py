"""Whether a component of this machine answers its health address."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from pathlib import Path
from typing import Final

_PATIENCE: Final = 1.0  # s for one answer of a process on this machine; it is asked again


def answers(host: str, port: int, path: str, authority: Path | None = None) -> bool:
    """Whether GET `path` is answered with 200. `authority`: the certificate to trust; none is plain HTTP."""
    with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(_open(host, port, authority)) as c:
        c.request("GET", path)
        return c.getresponse().status == http.client.OK
    return False


def answers_unverified(host: str, port: int, path: str) -> bool:
    """The same over TLS with a certificate that the component signed itself."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection(host, port, timeout=_PATIENCE, context=context)
    with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    return False


def listens(socket_path: Path) -> bool:
    """Whether a process accepts connections on the unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_PATIENCE)
        return client.connect_ex(str(socket_path)) == 0


def _open(host: str, port: int, authority: Path | None) -> http.client.HTTPConnection:
    if authority is None:
        return http.client.HTTPConnection(host, port, timeout=_PATIENCE)
    context = ssl.create_default_context(cafile=str(authority))
    return http.client.HTTPSConnection(host, port, timeout=_PATIENCE, context=context)
