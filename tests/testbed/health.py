"""Whether a component of this machine answers its health address."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from pathlib import Path
from typing import Final

_PATIENCE: Final = 1.0  # s for one answer of a process on this machine; it is asked again


def answers(host: str, port: int, path: str) -> bool:
    """Whether GET `path` is answered with 200."""
    return _is_ok(http.client.HTTPConnection(host, port, timeout=_PATIENCE), path)


def answers_safely(host: str, port: int, path: str, authority: Path | None = None) -> bool:
    """The same over TLS. `authority` is the certificate to trust; without it any will do, as one signed by itself."""
    context = ssl.create_default_context(cafile=authority)
    if authority is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return _is_ok(http.client.HTTPSConnection(host, port, timeout=_PATIENCE, context=context), path)


def listens(socket_path: Path) -> bool:
    """Whether a process accepts connections on the unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_PATIENCE)
        return client.connect_ex(str(socket_path)) == 0


def _is_ok(connection: http.client.HTTPConnection, path: str) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    return False
