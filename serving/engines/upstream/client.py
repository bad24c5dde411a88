"""A blocking client for an engine on a Unix socket or a TCP port: health, metrics, and inferences in a thread."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import httptools

from clusters.net import unix_sockets
from serving.engines.base.engine import Cancellation
from serving.engines.base.errors import Cancelled, InferenceFailed
from serving.engines.base.trace_context import HEADER, TRACEPARENT

MAX_PAGE: Final = 64 << 20  # bytes of a page that is read as a whole
OK: Final = 200
_FINAL: Final = 200  # lowest status of a response that is not interim
_RECEIVED: Final = 64 * 1024  # bytes that are read at once
_LENGTHS: Final = frozenset({b"content-length", b"transfer-encoding"})
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
        """Return the headers of every request, with the trace of the inference that sends it."""
        key = dict([self.key_header]) if self.key else {}
        trace = {HEADER.decode(): parent} if (parent := TRACEPARENT.get()) else {}
        return {"Host": self.authority or "engine", "Connection": "close", **key, **trace}


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


class _Response:
    """A response that httptools parses.

    An engine is read twice a second, all day, and http.client takes three times the CPU time.
    """

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._has_length = False
        self._complete = False

    def read(self, connected: socket.socket) -> Reply:
        """Return the response that comes on the connection. Raises OSError, httptools.HttpParserError."""
        size = 0
        while not self._complete:
            data = connected.recv(_RECEIVED)
            if not data and (self._has_length or not self._parser.get_status_code()):
                raise ConnectionError("it closed the connection before its response was complete")
            if not data:
                break
            size += len(data)
            if size > MAX_PAGE:
                raise ConnectionError(f"its response has more than {MAX_PAGE >> 20} MiB")
            self._parser.feed_data(data)
        return Reply(self._parser.get_status_code(), b"".join(self._body))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note whether the body ends before the connection does."""
        self._has_length = self._has_length or name.lower() in _LENGTHS

    def on_body(self, data: bytes) -> None:
        """Keep a piece of the body."""
        self._body.append(data)

    def on_message_complete(self) -> None:
        """Note the end of the body; an interim response has none."""
        self._complete = self._parser.get_status_code() >= _FINAL


def request(
    address: Address, method: str, path: str, body: bytes = b"", *, timeout: float | None = None,
    cancellation: Cancellation | None = None,
) -> Reply:  # fmt: skip
    """Send a request and return its response. Blocks, at most `timeout` seconds for each step.

    Raises InferenceFailed if the engine does not answer, Cancelled.
    """
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in address.headers.items())]
    if method == "POST":
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    try:
        with _connect(address, timeout, cancellation) as connected:
            connected.sendall("\r\n".join([*lines, "\r\n"]).encode() + body)
            return _Response().read(connected)
    except (OSError, httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
        raise _failure(error, cancellation) from error


def stream(address: Address, path: str, body: bytes, cancellation: Cancellation | None = None) -> Iterator[bytes]:
    """Yield the data of each server-sent event of the response. Raises InferenceFailed, Cancelled.

    A response that is not 200 is one InferenceFailed with its body.
    """
    connection = http.client.HTTPConnection("engine", timeout=None)
    try:
        connection.sock = _connect(address, None, cancellation)
        connection.request("POST", path, body, {**address.headers, "Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != OK:
            raise InferenceFailed(response.read(MAX_PAGE).decode("utf-8", "replace"))
        while line := response.readline():
            if line.startswith(b"data:"):
                yield line[len(b"data:") :].strip()
    except (OSError, http.client.HTTPException) as error:
        raise _failure(error, cancellation) from error
    finally:
        connection.close()


def _connect(address: Address, timeout: float | None, cancellation: Cancellation | None) -> socket.socket:
    """Return a connection, which `cancellation` shuts down. Raises OSError, Cancelled."""
    if cancellation is not None and cancellation.cancelled:
        raise Cancelled("the inference was cancelled")
    if address.port:
        connected = socket.create_connection((address.host, address.port), timeout)
        if name := address.server_name:
            connected = tls_context().wrap_socket(connected, server_hostname=name)
    else:
        connected = unix_sockets.connect(address.socket, timeout)
    if cancellation is not None:
        cancellation.on_cancel(lambda: _shut_down(connected))  # the reading thread gets the end of the stream
    return connected


def _shut_down(connected: socket.socket) -> None:
    try:
        connected.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it is closed already


def _failure(error: Exception, cancellation: Cancellation | None) -> Cancelled | InferenceFailed:
    if cancellation is not None and cancellation.cancelled:
        return Cancelled("the inference was cancelled")
    return InferenceFailed(f"the engine does not answer: {str(error) or type(error).__name__}")
