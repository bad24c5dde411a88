"""What both transports share: URLs, bounds of responses, and the translation of the library's errors."""

from __future__ import annotations

import inspect
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from clusters.base.sizes import format_size
from clusters.net.authority import url_host
from serving.client.effects import HttpAnswer, HttpRequest
from serving.client.errors import ClientError, NotConnected, Unreachable, UsageError
from serving.client.http import FOREIGN, MAX_BODY_BYTES, MAX_LINE_BYTES, ServerAddress, unreachable_text

LIBRARIES = ("httpx2", "httpx")
PLAIN = {"Accept-Encoding": "identity"}  # a small compressed response could fill the memory
NOT_SENT = ("ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol", "LocalProtocolError")
"""Errors of the library after which the server has received no part of a request."""
MAX_CONNECTIONS = 100  # to a server for inference requests, as in httpx; further requests wait for one
KEEPALIVE = 4.0
"""s until an idle connection is closed: before a server with the common limit of 5 s closes it, since a request that
is lost by that must not be sent again."""


def url_of(endpoint: ServerAddress, target: str) -> str:
    """Return the URL of a path on the server."""
    scheme = "https" if endpoint.tls is not None else "http"
    return f"{scheme}://{url_host(endpoint.host)}:{endpoint.port}{endpoint.prefix}{target}"


def arguments_of(request: HttpRequest) -> dict[str, Any]:
    """Return the arguments of `build_request` for a request."""
    endpoint = request.endpoint
    extensions = {"sni_hostname": endpoint.tls_name} if endpoint.tls_name else {}
    return {
        "method": request.method,
        "url": url_of(endpoint, request.target),
        "headers": {**PLAIN, **request.headers},
        "content": request.body,
        "timeout": request.timeout,
        "extensions": extensions,
    }


def pool_options(request: HttpRequest) -> dict[str, Any]:
    """Return the options of the pool for such requests. Streams of an API server keep connections, so it has no limit.

    A pool is therefore for inference requests or for others.
    """
    return {"max_connections": MAX_CONNECTIONS if request.inference else None, "keepalive_expiry": KEEPALIVE}


def library_of(client: Any) -> Any:
    """Return the library, httpx2 or httpx, of a client that the caller gave. Raises UsageError for other objects."""
    for made in type(client).__mro__:
        root = made.__module__.partition(".")[0]
        if root in LIBRARIES:
            return sys.modules[root]
    raise UsageError(
        f"http_client is a {type(client).__name__}: give a client of httpx2 or httpx, or omit it for a new one"
    )


def opened(client: Any) -> tuple[Any, Any]:
    """Return a client of the caller, and its library. Raises UsageError if it is closed."""
    if client.is_closed:
        raise UsageError("http_client is closed: give an open one, or omit it for a new one")
    return client, library_of(client)


def check_client(client: Any, *, asynchronous: bool) -> None:
    """Raise UsageError unless `client` is an HTTP client of the right kind, or None."""
    if client is None:
        return
    library_of(client)
    if inspect.iscoroutinefunction(client.send) != asynchronous:
        found, ours = ("an AsyncClient", "Client") if asynchronous else ("a Client", "AsyncClient")
        raise UsageError(f"http_client is not {found} of httpx2: give one, or use knodel.{ours}")


@contextmanager
def translated(library: Any, request: HttpRequest) -> Iterator[None]:
    """Raise Unreachable, or NotConnected if nothing was sent, for errors of the library in the block.

    Raises ClientError with the status of a response that an event hook of the caller has raised.
    """
    began = time.monotonic()
    try:
        yield
    except library.HTTPStatusError as error:  # by an event hook of the caller
        status, remedy = error.response.status_code, "without raise_for_status in its event hooks, the reason is shown"
        raise ClientError(f"http_client raised HTTP {status} of {request.endpoint.where}: {remedy}", status) from error
    except (library.HTTPError, library.InvalidURL, library.StreamError, TimeoutError, OSError) as error:
        late = request.timeout if _is_late(library, error, began, request.timeout) else None
        found = NotConnected if any(isinstance(error, getattr(library, name)) for name in NOT_SENT) else Unreachable
        raise found(unreachable_text(request.endpoint, _cause_of(error), late)) from error


def _is_late(library: Any, error: Exception, began: float, timeout: float) -> bool:
    is_timeout = isinstance(error, library.TimeoutException | TimeoutError)
    return is_timeout and time.monotonic() - began >= timeout * 0.99


def _cause_of(error: BaseException) -> BaseException:
    """Return the failed verification of a certificate that led to the error, else the error."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return error


class BodyParts:
    """The parts of a body, up to a maximum size."""

    def __init__(self, request: HttpRequest) -> None:
        self._where = request.endpoint.where
        self._remedy = "give batch_size for smaller parts, or outputs" if request.inference else FOREIGN
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, part: bytes) -> None:
        """Add a part. Raises ClientError when the body is too large."""
        self._size += len(part)
        self._parts.append(part)
        if self._size > MAX_BODY_BYTES:
            limit = format_size(MAX_BODY_BYTES)
            raise ClientError(f"the response of {self._where} is larger than {limit}: {self._remedy}")

    def content(self) -> bytes:
        """Return the whole body."""
        return b"".join(self._parts)


class LineParts:
    """Splits the parts of a body into lines of bounded length."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._rest = b""
        self._lines: list[bytes] = []

    def add(self, part: bytes) -> None:
        """Add a part. Raises ClientError when a line is too long."""
        *lines, self._rest = (self._rest + part).split(b"\n")
        self._lines += [line + b"\n" for line in lines]
        if len(self._rest) > MAX_LINE_BYTES:
            raise ClientError(f"a line of {self._where} is longer than {format_size(MAX_LINE_BYTES)}: {FOREIGN}")

    def next(self, *, ended: bool) -> bytes:
        """Return the next line; empty without one. At the end of the body, the rest is a line."""
        if self._lines:
            return self._lines.pop(0)
        rest, self._rest = (self._rest, b"") if ended else (b"", self._rest)
        return rest


class LineStream(NamedTuple):
    """A response that is read line by line: the response, its parts, and the lines so far."""

    request: HttpRequest
    response: Any
    parts: Any
    lines: LineParts
    library: Any


def answer_of(response: Any, content: bytes = b"", stream: Any = None) -> HttpAnswer:
    """Return a response of the library as an HttpAnswer."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    return HttpAnswer(response.status_code, response.reason_phrase, headers, content, stream)


class Deadline(threading.local):
    """The deadline of the request of this thread, on the monotonic clock; None without one."""

    at: float | None = None

    def limit(self, timeout: float | None) -> float | None:
        """Return the timeout of one operation, at most the time that is left. Raises TimeoutError when none is."""
        if self.at is None:
            return timeout
        left = self.at - time.monotonic()
        if left <= 0:
            raise TimeoutError("timeout")
        return left if timeout is None else min(timeout, left)
