"""One HTTP exchange with a server, bounded in time and size whatever is on the other end."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from clusters.base.sizes import format_size
from clusters.net import unix_sockets
from clusters.net.retry_after import parse_retry_after
from serving.cli.base.errors import CommandError, Unreachable

LONGEST_ANSWER = 64 * 1024 * 1024  # bytes; an endless body must not fill memory
LONGEST_LINE = 4 * 1024 * 1024  # bytes of one line of a stream: an object has 3 MiB at most
LONGEST_RETRY = 999_999.0  # s of a Retry-After header
FOREIGN = "is something else on its port?"


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy that tunnels to the server; `headers` are for the proxy alone."""

    host: str
    port: int
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An HTTP server: how it is reached, how messages name it, and what helps when it does not answer.

    With `tls`, its certificate must be for `tls_name` (empty: for `host`). `prefix` stands before every path. With
    `socket`, it listens at that path as the user `owner`, and `host` is only the request's Host.
    """

    host: str
    port: int
    what: str
    remedy: str
    tls: ssl.SSLContext | None = None
    tls_name: str = ""
    tls_remedy: str = ""
    proxy: Proxy | None = None
    prefix: str = ""
    socket: Path | None = None
    owner: int = -1

    @property
    def where(self) -> str:
        """The name of the server in messages."""
        if self.socket is not None:
            return f"{self.what} at {self.socket}"
        return f"{self.what} at {f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


class Answer:
    """An answer whose head has come."""

    def __init__(self, response: http.client.HTTPResponse, where: str, late: threading.Event) -> None:
        self.status = response.status
        self.phrase = response.reason
        self.headers = response.headers
        self._response = response
        self._where = where
        self._late = late

    def retry_after(self, least: float = 0.0) -> float | None:
        """Return the seconds of the Retry-After header, at least `least`; None for an absent or invalid one."""
        return parse_retry_after(self.headers.get("Retry-After"), datetime.now(UTC), least=least, most=LONGEST_RETRY)

    def body(self) -> bytes:
        """The whole body. Raises CommandError for one that is too large."""
        content = self._response.read(LONGEST_ANSWER + 1)
        _check_in_time(self._late)  # without Content-Length, what was cut off looks complete
        if len(content) > LONGEST_ANSWER:
            raise CommandError(f"the answer of {self._where} is larger than {format_size(LONGEST_ANSWER)}: {FOREIGN}")
        return content

    def lines(self) -> Iterator[bytes]:
        """The body line by line, as it comes. Raises CommandError for a line that is too long."""
        while line := self._response.readline(LONGEST_LINE + 1):
            if len(line) > LONGEST_LINE:
                raise CommandError(f"a line of {self._where} is longer than {format_size(LONGEST_LINE)}: {FOREIGN}")
            yield line


@contextmanager
def exchange(
    endpoint: Endpoint,
    method: str,
    target: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str],
    timeout: float,
    stream: bool = False,
    silence: float | None = None,
) -> Iterator[Answer]:
    """Send a request and yield its answer, which is complete within `timeout` seconds, however slowly it drips.

    With `stream` only its head must be; then it may go on for ever, and be silent for `silence` seconds (None: for
    ever). Raises Unreachable when the server does not answer in time, or breaks off.
    """
    connection = _Connection(endpoint, timeout)
    late = threading.Event()
    try:
        with _cut_after(timeout, connection, late) as timer:
            connection.connect()
            _check_in_time(late)
            connection.request(method, endpoint.prefix + target, body, headers)
            answer = Answer(connection.getresponse(), endpoint.where, late)
            _check_in_time(late)
            if stream:
                timer.cancel()
                connection.wire.settimeout(silence)
            yield answer
    except (OSError, http.client.HTTPException) as error:
        raise _unreachable(endpoint, error, timeout if late.is_set() else None) from error
    finally:
        connection.close()


class _Connection(http.client.HTTPConnection):
    """A connection that keeps its socket at hand, also when the answer has taken it over, and wraps it in TLS."""

    def __init__(self, endpoint: Endpoint, timeout: float) -> None:
        proxy = endpoint.proxy
        super().__init__(*((proxy.host, proxy.port) if proxy else (endpoint.host, endpoint.port)), timeout=timeout)
        if proxy:
            self.set_tunnel(endpoint.host, endpoint.port, dict(proxy.headers))
        self._endpoint = endpoint
        self._wire: socket.socket | None = None

    @property
    def wire(self) -> socket.socket:
        """The socket. Raises OSError before there is one."""
        wire = self._wire or self.sock
        if wire is None:
            raise OSError("not connected")
        return wire

    def connect(self) -> None:
        """Connect by the unix socket, or by TCP, through the proxy's tunnel, and with TLS. Raises OSError."""
        if self._endpoint.socket is not None:
            self.sock = self._wire = unix_sockets.connect(self._endpoint.socket, self.timeout)
            self._check_owner(self.sock)
            return
        super().connect()
        self._wire = self.sock
        if self._endpoint.tls is not None:
            name = self._endpoint.tls_name or self._endpoint.host
            self.sock = self._wire = self._endpoint.tls.wrap_socket(
                self.sock, server_hostname=name, do_handshake_on_connect=False
            )
            self.sock.do_handshake()

    def _check_owner(self, connection: socket.socket) -> None:
        """Raise PermissionError when another user listens: nothing may be sent to them."""
        uid = unix_sockets.peer_of(connection).uid
        if uid != self._endpoint.owner:
            raise PermissionError(f"user {uid} listens there, not user {self._endpoint.owner}")


def _unreachable(endpoint: Endpoint, error: Exception, late: float | None) -> Unreachable:
    if late is not None:
        reason = f"not within {late:g} s"
    elif isinstance(error, ssl.SSLCertVerificationError):
        return Unreachable(f"{endpoint.where} is not trusted ({error.verify_message}): {endpoint.tls_remedy}")
    else:
        reason = str(error) or error.__class__.__name__
    return Unreachable(f"{endpoint.where} does not answer ({reason}): {endpoint.remedy}")


@contextmanager
def _cut_after(seconds: float, connection: _Connection, late: threading.Event) -> Iterator[threading.Timer]:
    """End the exchange from outside: a drip of bytes never runs into the timeout of a socket."""
    timer = threading.Timer(seconds, _cut, (connection, late))
    timer.daemon = True
    timer.start()
    try:
        yield timer
    finally:
        timer.cancel()


def _check_in_time(late: threading.Event) -> None:
    if late.is_set():
        raise TimeoutError


def _cut(connection: _Connection, late: threading.Event) -> None:
    late.set()
    try:
        # The base class's: that of TLS forgets the session first, and a read would then return what is encrypted.
        socket.socket.shutdown(connection.wire, socket.SHUT_RDWR)
    except OSError:
        return  # the other end was faster, or there is no connection yet: its own timeout ends the attempt
