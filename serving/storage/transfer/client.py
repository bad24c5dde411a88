"""An HTTP client for model stores: it resolves each host of a redirect chain, checks the addresses, and then connects.

It blocks, since loading a model runs in a thread anyway. It uses only the standard library: the import of an HTTP
library takes longer than the download of a small model, and none lets its caller check the address of a connection. It
ignores the proxies of the environment.
"""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Protocol
from urllib.parse import urljoin

from clusters.base.sizes import format_size
from clusters.net.retry_after import parse_retry_after
from clusters.net.ssrf import allowed_after
from serving.storage.base.errors import HttpStatusError, StorageError, TransferInterrupted
from serving.storage.transfer.connection import Connection, translate
from serving.storage.transfer.limits import TransferDeadline, TransferLimits
from serving.storage.transfer.pool import StoreConnectionPool
from serving.storage.transfer.urls import HttpUrl, parse_url

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_NOT_REPEATABLE: Final = frozenset({"POST", "PATCH"})
"""Methods whose requests are not sent over an idle connection, since the server may have closed it: a failure there
does not show whether the server has acted (RFC 9110, section 9.2.2)."""
_REFUSED_BODY: Final = (BrokenPipeError, ConnectionResetError)
"""Errors of sending when a server responds, and closes the connection, before it has read the whole body."""
_CHUNK: Final = 1 << 18  # bytes between two checks of the limits
_LONGEST_RETRY_AFTER: Final = 60.0  # s


class BodySource(Protocol):
    """The body of a request that is not in memory as a whole."""

    @property
    def size(self) -> int:
        """The size in bytes."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes, or fewer at the end. Raises StorageError."""
        ...


@dataclass(frozen=True, slots=True)
class StoreRequest:
    """A GET request, a POST with a `body`, or another `method`. `name` denotes it in messages.

    `secrets` are headers for the origin (scheme, host, port) of `url` only; redirects to other origins do not get them.
    After a 401 of that origin, `login` returns new secrets, and the request is repeated once. `sent` is called with the
    number of bytes of the body that have been sent. `action` completes messages: "cannot be downloaded".
    """

    url: str
    name: str
    headers: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | BodySource | None = None
    login: Callable[[StoreResponse], Mapping[str, str]] | None = None
    method: str = ""
    sent: Callable[[int], None] | None = None
    action: str = "downloaded"

    @property
    def failure(self) -> str:
        """Return the beginning of messages about a failed request."""
        return f"{self.name}: cannot be {self.action}"


@dataclass(frozen=True, slots=True)
class StoreResponse:
    """A response whose body is not read yet.

    `allowed` are the hosts that URLs in the response may lead to. `direct` is False after a redirect to another origin.
    """

    response: http.client.HTTPResponse
    allowed: frozenset[str]
    name: str
    direct: bool

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.response.status

    def header(self, name: str) -> str:
        """Return the value of a header; "" when it is absent."""
        return self.response.headers.get(name) or ""

    def raise_for_status(self) -> None:
        """Raise HttpStatusError for a status other than 200, and StorageError for a compressed body."""
        if self.status != http.client.OK:
            message = f"{self.name}: cannot be downloaded: the server answered {self.status}"
            raise HttpStatusError(message, self.status, self.retry_after)
        self.check_encoding()

    @property
    def retry_after(self) -> float:
        """The delay before a retry that the server requests, in seconds; 0 without one."""
        text = self.header("Retry-After")
        return parse_retry_after(text, datetime.now(UTC), least=0.0, most=_LONGEST_RETRY_AFTER) or 0.0

    def check_encoding(self) -> None:
        """Raise StorageError for a compressed body, which no request accepts."""
        if (self.header("Content-Encoding") or "identity").lower() != "identity":
            raise StorageError(
                f"{self.name}: cannot be downloaded: the server sent a compressed body, which was not requested"
            )


class StoreClient:
    """Sends requests until the deadline, over a pool of connections. Thread-safe.

    `allow_hosts` as in `ssrf.check_addresses` and `ssrf.allowed_after`.

    Example:
        with client.stream(StoreRequest("https://models.example/m.onnx", "the model")) as response:
            response.raise_for_status()
            content = client.read(response, 1 << 20)
    """

    def __init__(self, allow_hosts: frozenset[str], limits: TransferLimits, deadline: TransferDeadline) -> None:
        self.pool = StoreConnectionPool(limits, deadline)
        self._limits = limits
        self._allow_hosts = allow_hosts

    def allows(self, host: str) -> bool:
        """Return whether the administrator allows this host by its name."""
        return host in self._allow_hosts

    @contextlib.contextmanager
    def stream(self, request: StoreRequest, allowed: frozenset[str] | None = None) -> Iterator[StoreResponse]:
        """Send a request, follow redirects, and yield the last response of any status. Raises StorageError.

        `allowed` replaces the allowed hosts of the client.
        """
        with self._follow(request, allowed) as response:
            if response.status != http.client.UNAUTHORIZED or request.login is None or not response.direct:
                yield response
                return
        with self._follow(replace(request, secrets=request.login(response)), allowed) as response:
            yield response

    def iter_bytes(self, response: StoreResponse) -> Iterator[bytes]:
        """Yield the body as it arrives. Raises TransferInterrupted when it breaks off or at the deadline."""
        while True:
            try:
                chunk = response.response.read1(_CHUNK)
            except (OSError, http.client.HTTPException) as error:
                raise translate(f"{response.name}: cannot be downloaded", error) from error
            if not chunk:
                return
            yield chunk

    def read(self, response: StoreResponse, most: int) -> bytes:
        """Return the body. Raises StorageError for more than `most` bytes, TransferInterrupted for a partial body."""
        body = bytearray()
        for chunk in self.iter_bytes(response):
            body += chunk
            if len(body) > most:
                raise StorageError(f"{response.name}: the response has more than {format_size(most)}, the limit")
        if response.response.length:  # `read1` does not raise when the server closes the connection early
            raise TransferInterrupted(f"{response.name}: it ended early")
        return bytes(body)

    @contextlib.contextmanager
    def _follow(self, request: StoreRequest, allowed: frozenset[str] | None) -> Iterator[StoreResponse]:
        url = request.url
        origin: tuple[str, str, int] | None = None
        allowed = self._allow_hosts if allowed is None else allowed
        for _ in range(self._limits.redirects + 1):
            parsed = parse_url(url)
            origin = origin or parsed.origin
            direct = parsed.origin == origin
            connection, response = self._send(parsed, request, request.secrets if direct else {}, allowed)
            try:
                allowed = allowed_after(connection.peer, allowed)
                location = response.headers.get("Location")
                follows = request.body is None and request.method in ("", "HEAD")
                if response.status not in _REDIRECTS or not location or not follows:
                    yield StoreResponse(response, allowed, request.name, direct)
                    return
                url = _redirect_url(request.failure, url, location)
            finally:
                self.pool.give_back(connection, response)
        raise StorageError(f"{request.failure}: more than {self._limits.redirects} redirects")

    def _send(
        self, url: HttpUrl, request: StoreRequest, secrets: Mapping[str, str], allowed: frozenset[str]
    ) -> tuple[Connection, http.client.HTTPResponse]:
        """Send one request over an idle or new connection and return its response. Raises StorageError."""
        headers = {"Host": url.host_header, "Accept-Encoding": "identity", "User-Agent": "knodel"}
        headers |= {**request.headers, **secrets}
        method = request.method or ("GET" if request.body is None else "POST")
        if request.body is not None:
            size = len(request.body) if isinstance(request.body, bytes) else request.body.size
            headers["Content-Length"] = str(size)
        idle = self.pool.take(url, allowed) if method not in _NOT_REPEATABLE else None
        connection = idle or self.pool.open(url, request.name, allowed)
        while True:
            try:
                with contextlib.suppress(*_REFUSED_BODY) if request.body else contextlib.nullcontext():
                    body: Any = None if request.body is None else _BodyReader(request.body, request.sent)
                    connection.request(method, url.request_target, body, headers)
                return connection, connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if connection is not idle or isinstance(error, TimeoutError):
                    raise translate(request.failure, error) from error
                connection = self.pool.open(url, request.name, allowed)  # the server closed the idle one
            except ValueError as error:  # from http.client, for the value of a header
                connection.close()
                raise StorageError(
                    f"{request.name}: a credential has a line break or control character: remove it"
                ) from error
            except BaseException:
                connection.close()
                raise


class _BodyReader:
    """Reads a request's body, and reports at each read the bytes of the former reads, which were sent."""

    def __init__(self, body: bytes | BodySource, sent: Callable[[int], None] | None) -> None:
        self._body = body
        self._sent = sent
        self._offset = 0

    def read(self, size: int) -> bytes:
        """Return the next block."""
        if self._sent is not None:
            self._sent(self._offset)
        if isinstance(self._body, bytes):
            block = self._body[self._offset : self._offset + size]
        else:
            block = self._body.read(self._offset, size)
        self._offset += len(block)
        return block


def _redirect_url(failure: str, url: str, location: str) -> str:
    """Return the absolute URL of a redirect. Raises StorageError when it is invalid or leaves https."""
    try:
        target = urljoin(url, location)
    except ValueError as error:
        raise StorageError(f"{failure}: it redirects to an invalid URL") from error
    if url.lower().startswith("https:") and not target.lower().startswith("https:"):
        raise StorageError(f"{failure}: it redirects from https to {target.partition(':')[0][:20]}")
    return target
