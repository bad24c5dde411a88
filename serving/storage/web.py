"""Requests over HTTP, for all that is fetched by it: each hop is resolved, checked and then connected to.

It blocks, as loading does anyway, and stands on the standard library: an HTTP client would cost a start more than the
download of a small model, and would not tell which address it connects to. No proxy of the environment is used.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urldefrag, urljoin

from serving.storage.addresses import Target, allowed_after, check_addresses, parse
from serving.storage.disk import LARGEST_FILE
from serving.storage.errors import Interrupted, Refused, StorageError

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_CHUNK: Final = 1 << 18  # bytes between two looks at the limits


@dataclass(frozen=True, slots=True)
class DownloadLimits:
    """Bounds of one download; seconds and bytes."""

    connect: float = 10.0  # of one connection attempt
    silence: float = 30.0  # without a byte
    total: float = 3600.0  # even of a server that drips; the startup deadline of a model is rarely longer
    size: int = LARGEST_FILE
    redirects: int = 5
    retries: int = 4  # connections in a row that bring nothing new of a file that has begun to come
    pause: float = 1.0  # before the first of them; doubled before each further one


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for; `name` stands for it in messages.

    `secrets` are headers for the origin (scheme, host, port) of `url` only: no redirect takes them elsewhere. With a
    `body` it is a POST.
    """

    url: str
    name: str
    headers: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer whose body is still to be read; `allowed` are the hosts that what it refers to may be at."""

    response: http.client.HTTPResponse
    allowed: frozenset[str]
    name: str

    @property
    def status(self) -> int:
        """Its HTTP status."""
        return self.response.status

    def header(self, name: str) -> str:
        """A header's value; "" when it is absent."""
        return self.response.headers.get(name) or ""

    def check(self) -> None:
        """Refuse what is no file. Raises Refused, StorageError."""
        if self.status != http.client.OK:
            raise Refused(f"{self.name}: cannot be downloaded: the server answered {self.status}", self.status)
        if (self.header("Content-Encoding") or "identity").lower() != "identity":
            raise StorageError(f"{self.name}: cannot be downloaded: the server sent it compressed, though not asked to")


class Web:
    """Asks servers; `allow_hosts` as in `addresses.check_addresses` and `allowed_after`."""

    def __init__(
        self,
        allow_hosts: frozenset[str],
        limits: DownloadLimits | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits or DownloadLimits()
        self._allow_hosts = allow_hosts
        self._monotonic = monotonic

    def deadline(self) -> float:
        """Until when (`monotonic`) what begins now has to be complete."""
        return self._monotonic() + self.limits.total

    def allows(self, host: str) -> bool:
        """Whether the administrator allows this host by its name."""
        return host in self._allow_hosts

    @contextlib.contextmanager
    def ask(self, request: Request, allowed: frozenset[str] | None = None) -> Iterator[Answer]:
        """The answer at the end of all redirects, whatever its status. Raises StorageError."""
        hop = urldefrag(request.url).url
        origin = parse(hop).origin
        allowed = self._allow_hosts if allowed is None else allowed
        for _ in range(self.limits.redirects + 1):
            target = parse(hop)
            connection = self._connect(target, request.name, allowed)
            try:
                allowed = allowed_after(str(connection.sock.getpeername()[0]), allowed)
                with _send(connection, target, request, request.secrets if target.origin == origin else {}) as response:
                    location = response.headers.get("Location")
                    if response.status not in _REDIRECTS or not location or request.body is not None:
                        yield Answer(response, allowed, request.name)
                        return
                    hop = _redirected(request.name, hop, location)
            finally:
                connection.close()
        raise StorageError(f"{request.name}: cannot be downloaded: more than {self.limits.redirects} redirects")

    def chunks(self, answer: Answer, deadline: float) -> Iterator[bytes]:
        """The body as it comes. Raises Interrupted when it breaks off, StorageError when the deadline passes."""
        while True:
            try:
                chunk = answer.response.read1(_CHUNK)
            except (OSError, http.client.HTTPException) as error:
                raise Interrupted(f"{answer.name}: cannot be downloaded: {reason_of(error)}") from error
            if not chunk:
                return
            if self._monotonic() > deadline:
                raise StorageError(f"{answer.name}: cannot be downloaded: not complete after {self.limits.total:g} s")
            yield chunk

    def read(self, answer: Answer, most: int) -> bytes:
        """A short body, at most so many bytes. Raises StorageError."""
        body = bytearray()
        for chunk in self.chunks(answer, self.deadline()):
            body += chunk
            if len(body) > most:
                raise StorageError(f"{answer.name}: the server's answer has more than {most} bytes, the limit")
        return bytes(body)

    def _connect(self, target: Target, name: str, allowed: frozenset[str]) -> http.client.HTTPConnection:
        """A connection that is open to a checked address. Raises StorageError."""
        connection = http.client.HTTPConnection(target.host, target.port)
        try:
            found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
            check_addresses(target, (str(info[4][0]) for info in found), allowed, name)
            connection.sock = self._open(found)
            if target.scheme == "https":
                context = ssl.create_default_context()
                connection.sock = context.wrap_socket(connection.sock, server_hostname=target.host)
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name with an endless label
            connection.close()
            raise Interrupted(f"{name}: host {target.host!r} cannot be reached: {reason_of(error)}") from error
        return connection

    def _open(self, found: list[Any]) -> socket.socket:
        """A connection to the first address that answers; raises the last one's OSError."""
        failure = OSError("no address")
        for family, kind, protocol, _, address in found:
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(self.limits.connect)
                sock.connect(address)
                sock.settimeout(self.limits.silence)
            except OSError as error:
                sock.close()
                failure = error
            else:
                return sock
        raise failure


def reason_of(error: Exception) -> str:
    """Why a connection failed, in words without addresses or credentials."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, http.client.IncompleteRead):
        return "it ended early"
    if isinstance(error, http.client.HTTPException):
        return "the answer is not HTTP"
    return getattr(error, "strerror", None) or type(error).__name__


def _send(
    connection: http.client.HTTPConnection, target: Target, request: Request, secrets: Mapping[str, str]
) -> http.client.HTTPResponse:
    headers = {"Host": target.host_header, "Accept-Encoding": "identity", "User-Agent": "knodel"}
    method = "GET" if request.body is None else "POST"
    try:
        connection.request(method, target.request_target, request.body, {**headers, **request.headers, **secrets})
        return connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        raise Interrupted(f"{request.name}: cannot be downloaded: {reason_of(error)}") from error
    except ValueError as error:  # of http.client, for a header's value
        raise StorageError(f"{request.name}: a credential has a line break or control sign: remove it") from error


def _redirected(name: str, hop: str, location: str) -> str:
    """The next address, absolute; `parse` checks it as it did the first."""
    target = urldefrag(urljoin(hop, location)).url
    if hop.lower().startswith("https:") and not target.lower().startswith("https:"):
        raise StorageError(f"{name}: cannot be downloaded: it redirects from https to {target.partition(':')[0][:20]}")
    return target
