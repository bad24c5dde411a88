"""A blocking client for an engine on a Unix socket or a TCP port: health, metrics, and inferences in a thread."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from serving.engines.base.engine import Cancellation
from serving.engines.base.errors import Cancelled, InferenceFailed

MAX_PAGE: Final = 64 << 20  # bytes of a page that is read as a whole
OK: Final = 200
ABSENT: Final = (404, 501)
"""Statuses of a page that an engine does not have; llama.cpp sends 501 for metrics that are not turned on."""
LOOPBACK: Final = "127.0.0.1"


class Address(NamedTuple):
    """Where an engine listens, and the key that it accepts.

    It listens on `socket`, or with a `port` on that TCP port of the address `host`. `header` is the name of the header
    with the key; "" is Authorization, with a bearer token. Without a `key` there is no such header. `authority` is the
    header Host, "" for that of the caller. `server_name` is the name in the certificate of a server with TLS. Paths of
    callers are below `prefix`.
    """

    socket: Path
    key: str
    port: int = 0
    header: str = ""
    host: str = LOOPBACK
    authority: str = ""
    server_name: str = ""
    prefix: str = ""

    @property
    def key_header(self) -> tuple[str, str]:
        """Return name and value of the header with the key."""
        return (self.header, self.key) if self.header else ("Authorization", f"Bearer {self.key}")

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of every request."""
        key = dict([self.key_header]) if self.key else {}
        return {"Host": self.authority or "engine", "Connection": "close", **key}


@cache
def tls_context() -> ssl.SSLContext:
    """Return the context of connections to servers with TLS, whose certificates are verified."""
    return ssl.create_default_context()


class NoSuchPage(InferenceFailed):
    """Raised when an engine does not have the page that it is asked for."""


class Reply(NamedTuple):
    """A complete response of the engine."""

    status: int
    body: bytes


class _Connection(http.client.HTTPConnection):
    def __init__(self, address: Address, timeout: float | None) -> None:
        super().__init__(address.host, address.port or None, timeout=timeout)
        self._address = address

    def connect(self) -> None:
        if self._address.port:
            super().connect()
            if name := self._address.server_name:
                self.sock = tls_context().wrap_socket(self.sock, server_hostname=name)
            return
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._address.socket))


def request(
    address: Address, method: str, path: str, body: bytes | None = None, *, timeout: float | None = None,
    cancellation: Cancellation | None = None,
) -> Reply:  # fmt: skip
    """Send a request and return its response. Blocks, at most `timeout` seconds for each step.

    Raises InferenceFailed if the engine does not answer, Cancelled.
    """
    connection = _Connection(address, timeout)
    try:
        response = _send(connection, address, method, path, body, cancellation)
        return Reply(response.status, response.read(MAX_PAGE))
    except (OSError, http.client.HTTPException) as error:
        raise _failure(error, cancellation) from error
    finally:
        connection.close()


def stream(address: Address, path: str, body: bytes, cancellation: Cancellation | None = None) -> Iterator[bytes]:
    """Yield the data of each server-sent event of the response. Raises InferenceFailed, Cancelled.

    A response that is not 200 is one InferenceFailed with its body.
    """
    connection = _Connection(address, None)
    try:
        response = _send(connection, address, "POST", path, body, cancellation)
        if response.status != OK:
            raise InferenceFailed(response.read(MAX_PAGE).decode("utf-8", "replace"))
        while line := response.readline():
            if line.startswith(b"data:"):
                yield line[len(b"data:") :].strip()
    except (OSError, http.client.HTTPException) as error:
        raise _failure(error, cancellation) from error
    finally:
        connection.close()


def _send(
    connection: _Connection, address: Address, method: str, path: str, body: bytes | None,
    cancellation: Cancellation | None,
) -> http.client.HTTPResponse:  # fmt: skip
    if cancellation is not None and cancellation.cancelled:
        raise Cancelled("the inference was cancelled")
    connection.connect()
    if cancellation is not None:
        connected = connection.sock
        cancellation.on_cancel(lambda: _shut_down(connected))  # the reading thread gets the end of the stream
    headers = address.headers if body is None else {**address.headers, "Content-Type": "application/json"}
    connection.request(method, path, body, headers)
    return connection.getresponse()


def _shut_down(connected: socket.socket) -> None:
    try:
        connected.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it is closed already


def _failure(error: Exception, cancellation: Cancellation | None) -> Cancelled | InferenceFailed:
    if cancellation is not None and cancellation.cancelled:
        return Cancelled("the inference was cancelled")
    return InferenceFailed(f"the engine does not answer: {str(error) or type(error).__name__}")
