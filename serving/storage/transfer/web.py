"""Requests over HTTP, for all that is fetched by it: each hop is resolved, checked and then connected to.

It blocks, as loading does anyway, and stands on the standard library: an HTTP client would cost a start more than the
download of a small model, and would not tell which address it connects to. No proxy of the environment is used.
"""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import urljoin

from clusters.base.sizes import format_size
from clusters.net.ssrf import allowed_after
from serving.storage.base.errors import Interrupted, Refused, StorageError
from serving.storage.transfer.addresses import Target, parse
from serving.storage.transfer.connection import Connection, translate
from serving.storage.transfer.deadline import Deadline
from serving.storage.transfer.limits import DownloadLimits
from serving.storage.transfer.pool import ConnectionPool

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_CHUNK: Final = 1 << 18  # bytes between two looks at the limits
_LONGEST_SECONDS: Final = 6  # digits of a Retry-After that is believed


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for; `name` stands for it in messages.

    `secrets` are headers for the origin (scheme, host, port) of `url` only: no redirect takes them elsewhere. With a
    `body` it is a POST. `login` makes new secrets from the 401 of that origin, after which it is asked once more.
    """

    url: str
    name: str
    headers: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = None
    login: Callable[[Answer], Mapping[str, str]] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer whose body is still to be read.

    `allowed` are the hosts that what it refers to may be at; `direct` says that no redirect led to another origin.
    """

    response: http.client.HTTPResponse
    allowed: frozenset[str]
    name: str
    direct: bool

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
            wish = self.header("Retry-After")  # as a date it is passed over
            after = int(wish) if wish.isascii() and wish.isdigit() and len(wish) <= _LONGEST_SECONDS else 0
            raise Refused(f"{self.name}: cannot be downloaded: the server answered {self.status}", self.status, after)
        self.check_encoding()

    def check_encoding(self) -> None:
        """Refuse a compressed body. Raises StorageError."""
        if (self.header("Content-Encoding") or "identity").lower() != "identity":
            raise StorageError(f"{self.name}: cannot be downloaded: the server sent it compressed, though not asked to")


class Web:
    """Sends requests until the deadline, over kept connections. Thread-safe.

    `allow_hosts` as in `ssrf.check_addresses` and `allowed_after`.
    """

    def __init__(self, allow_hosts: frozenset[str], limits: DownloadLimits, deadline: Deadline) -> None:
        self.pool = ConnectionPool(limits, deadline)
        self._limits = limits
        self._allow_hosts = allow_hosts

    def allows(self, host: str) -> bool:
        """Return whether the administrator allows this host by its name."""
        return host in self._allow_hosts

    @contextlib.contextmanager
    def ask(self, request: Request, allowed: frozenset[str] | None = None) -> Iterator[Answer]:
        """The answer at the end of all redirects, whatever its status. Raises StorageError."""
        with self._asked(request, allowed) as answer:
            if answer.status != http.client.UNAUTHORIZED or request.login is None or not answer.direct:
                yield answer
                return
        with self._asked(replace(request, secrets=request.login(answer)), allowed) as answer:
            yield answer

    def chunks(self, answer: Answer) -> Iterator[bytes]:
        """The body as it comes. Raises Interrupted when it breaks off or the deadline passes, StorageError."""
        while True:
            try:
                chunk = answer.response.read1(_CHUNK)
            except (OSError, http.client.HTTPException) as error:
                raise translate(f"{answer.name}: cannot be downloaded", error) from error
            if not chunk:
                return
            yield chunk

    def read(self, answer: Answer, most: int) -> bytes:
        """A short body, at most so many bytes. Raises StorageError."""
        body = bytearray()
        for chunk in self.chunks(answer):
            body += chunk
            if len(body) > most:
                raise StorageError(f"{answer.name}: the server's answer has more than {format_size(most)}, the limit")
        if answer.response.length:  # what is missing at an early end, which `read1` takes for the end
            raise Interrupted(f"{answer.name}: it ended early")
        return bytes(body)

    @contextlib.contextmanager
    def _asked(self, request: Request, allowed: frozenset[str] | None) -> Iterator[Answer]:
        hop = request.url
        origin: tuple[str, str, int] | None = None
        allowed = self._allow_hosts if allowed is None else allowed
        for _ in range(self._limits.redirects + 1):
            target = parse(hop)
            origin = origin or target.origin
            direct = target.origin == origin
            with self._exchange(target, request, request.secrets if direct else {}, allowed) as (peer, response):
                allowed = allowed_after(peer, allowed)
                location = response.headers.get("Location")
                if response.status not in _REDIRECTS or not location or request.body is not None:
                    yield Answer(response, allowed, request.name, direct)
                    return
                hop = _redirected(request.name, hop, location)
        raise StorageError(f"{request.name}: cannot be downloaded: more than {self._limits.redirects} redirects")

    @contextlib.contextmanager
    def _exchange(
        self, target: Target, request: Request, secrets: Mapping[str, str], allowed: frozenset[str]
    ) -> Iterator[tuple[str, http.client.HTTPResponse]]:
        """Send one request; yield the address of the server and its response. Raises StorageError."""
        connection, response = self._send(target, request, secrets, allowed)
        try:
            yield connection.peer, response
        finally:
            self.pool.give_back(connection, response)

    def _send(
        self, target: Target, request: Request, secrets: Mapping[str, str], allowed: frozenset[str]
    ) -> tuple[Connection, http.client.HTTPResponse]:
        headers = {"Host": target.host_header, "Accept-Encoding": "identity", "User-Agent": "knodel"}
        headers |= {**request.headers, **secrets}
        method = "GET" if request.body is None else "POST"
        kept = self.pool.take(target, allowed) if request.body is None else None  # a POST cannot be repeated
        connection = kept or self.pool.open(target, request.name, allowed)
        while True:
            try:
                connection.request(method, target.request_target, request.body, headers)
                return connection, connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if connection is not kept or isinstance(error, TimeoutError):
                    raise translate(f"{request.name}: cannot be downloaded", error) from error
                connection = self.pool.open(target, request.name, allowed)  # the server closed the kept one
            except ValueError as error:  # of http.client, for a header's value
                connection.close()
                raise StorageError(
                    f"{request.name}: a credential has a line break or control sign: remove it"
                ) from error
            except BaseException:
                connection.close()
                raise


def _redirected(name: str, hop: str, location: str) -> str:
    """The next address, absolute; `parse` checks it as it did the first."""
    try:
        target = urljoin(hop, location)
    except ValueError as error:
        raise StorageError(f"{name}: cannot be downloaded: it redirects to what is no URL") from error
    if hop.lower().startswith("https:") and not target.lower().startswith("https:"):
        raise StorageError(f"{name}: cannot be downloaded: it redirects from https to {target.partition(':')[0][:20]}")
    return target
