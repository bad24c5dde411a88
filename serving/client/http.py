"""One HTTP exchange with an untrusted server: a request and its response, limited in time and size."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from clusters.base.sizes import format_size
from clusters.net import unix_sockets
from clusters.net.retry_after import parse_retry_after
from serving.client.errors import ClientError, NotConnected, Unreachable

MAX_BODY_BYTES = 64 * 1024 * 1024  # an endless body must not fill the memory
MAX_LINE_BYTES = 4 * 1024 * 1024  # one line of a stream; an object has at most 3 MiB
MAX_RETRY_AFTER = 999_999.0  # s of a Retry-After header
FOREIGN = "check that no other server listens at this address"


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy that tunnels to the server; `headers` are sent to the proxy only."""

    host: str
    port: int
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of an HTTP server, its name in messages (`what`), and the `remedy` when it does not respond.

    With `tls`, its certificate must be valid for `tls_name` (empty: for `host`). `prefix` precedes every path. With
    `socket`, the server listens at that path as the user `owner`, and `host` is only the Host header.
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
        """The name and address of the server for messages."""
        if self.socket is not None:
            return f"{self.what} at {self.socket}"
        return f"{self.what} at {f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


class ApiResponse:
    """A response whose head has arrived."""

    def __init__(
        self, response: http.client.HTTPResponse, where: str, late: threading.Event, connection: _Connection
    ) -> None:
        self.status = response.status
        self.phrase = response.reason
        self.headers = response.headers
        self._response = response
        self._where = where
        self._late = late
        self._connection = connection

    def cut(self) -> None:
        """Shut the connection down, so that a read in another thread ends."""
        _cut(self._connection, self._late)

    def names(self) -> dict[str, str]:
        """Return the headers by their names in lower case; the last one of several with a name."""
        return {name.lower(): value for name, value in self.headers.items()}

    def retry_after(self, least: float = 0.0) -> float | None:
        """Return the seconds of the Retry-After header, at least `least`; None for an absent or invalid one."""
        return parse_retry_after(self.headers.get("Retry-After"), datetime.now(UTC), least=least, most=MAX_RETRY_AFTER)

    def body(self) -> bytes:
        """Return the whole body. Raises ClientError when it is too large."""
        content = self._response.read(MAX_BODY_BYTES + 1)
        _check_in_time(self._late)  # without Content-Length, a truncated body looks complete
        if len(content) > MAX_BODY_BYTES:
            raise ClientError(f"the response of {self._where} is larger than {format_size(MAX_BODY_BYTES)}: {FOREIGN}")
        if self._response.length:  # `read` with a size does not check it
            raise http.client.IncompleteRead(content, self._response.length)
        return content

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of the body as they arrive. Raises ClientError when a line is too long."""
        while line := self._response.readline(MAX_LINE_BYTES + 1):
            if len(line) > MAX_LINE_BYTES:
                raise ClientError(f"a line of {self._where} is longer than {format_size(MAX_LINE_BYTES)}: {FOREIGN}")
            yield line


@contextmanager
def exchange(
    endpoint: ServerAddress,
    method: str,
    target: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str],
    timeout: float,
    stream: bool = False,
    silence: float | None = None,
) -> Iterator[ApiResponse]:
    """Send a request and yield its response; all of it must arrive within `timeout` seconds.

    With `stream`, only the head must; the body may then last without limit, with gaps of at most `silence` seconds
    (None: no limit). Raises Unreachable when the server does not respond in time, or closes the connection early.
    """
    connection = _Connection(endpoint, timeout)
    late, connected = threading.Event(), False
    raw: http.client.HTTPResponse | None = None
    try:
        with _cut_after(timeout, connection, late) as timer:
            connection.connect()
            _check_in_time(late)
            connected = True
            connection.request(method, endpoint.prefix + target, body, headers)
            raw = connection.getresponse()
            response = ApiResponse(raw, endpoint.where, late, connection)
            _check_in_time(late)
            if stream:
                timer.cancel()
                connection.wire.settimeout(silence)
            yield response
    except (OSError, http.client.HTTPException) as error:
        found = Unreachable if connected else NotConnected
        raise found(unreachable_text(endpoint, error, timeout if late.is_set() else None)) from error
    finally:
        if raw is not None:
            raw.close()
        connection.close()


class LineReader:
    """The stream of a response, from `open_lines`. Another thread may close it while a line is read."""

    def __init__(self, context: AbstractContextManager[ApiResponse]) -> None:
        self._context = context
        self.response = context.__enter__()
        self._lines = self.response.lines()

    def read(self) -> bytes:
        """Return the next line; empty at the end. Raises Unreachable, ClientError when a line is too long."""
        return self._translated(lambda: next(self._lines, b""))

    def rest(self) -> bytes:
        """Return the rest of the body. Raises as `read`."""
        return self._translated(self.response.body)

    def close(self) -> None:
        """Close the connection."""
        self.response.cut()
        with suppress(ClientError, ValueError):  # another thread may be reading
            self._context.__exit__(None, None, None)

    def _translated(self, read: Callable[[], bytes]) -> bytes:
        try:
            return read()
        except Exception as error:
            self._context.__exit__(type(error), error, error.__traceback__)
            raise


def open_lines(
    endpoint: ServerAddress, method: str, target: str, *, body: bytes | None = None, headers: Mapping[str, str],
    timeout: float, silence: float | None,
) -> LineReader:  # fmt: skip
    """Send a request and return its response as a stream of lines. Raises as `exchange`, which has the arguments."""
    return LineReader(
        exchange(endpoint, method, target, body=body, headers=headers, timeout=timeout, stream=True, silence=silence)
    )


class _Connection(http.client.HTTPConnection):
    """A connection over TCP or a unix socket, with TLS; it keeps its socket after the response has detached it."""

    def __init__(self, endpoint: ServerAddress, timeout: float) -> None:
        proxy = endpoint.proxy
        super().__init__(*((proxy.host, proxy.port) if proxy else (endpoint.host, endpoint.port)), timeout=timeout)
        if proxy:
            self.set_tunnel(endpoint.host, endpoint.port, dict(proxy.headers))
        self._endpoint = endpoint
        self._wire: socket.socket | None = None

    @property
    def wire(self) -> socket.socket:
        """The socket. Raises OSError before it is connected."""
        wire = self._wire or self.sock
        if wire is None:
            raise OSError("not connected")
        return wire

    def connect(self) -> None:
        """Connect by the unix socket, or by TCP, through the tunnel of the proxy, and with TLS.

        Raises PermissionError when another user listens at the unix socket: nothing is sent then. Raises OSError.
        """
        if self._endpoint.socket is not None:
            self.sock = self._wire = unix_sockets.connect(self._endpoint.socket, self.timeout)
            uid = unix_sockets.peer_of(self.sock).uid
            if uid != self._endpoint.owner:
                raise PermissionError(f"user {uid} listens there, not user {self._endpoint.owner}")
            return
        super().connect()
        self._wire = self.sock
        if self._endpoint.tls is not None:
            name = self._endpoint.tls_name or self._endpoint.host
            self.sock = self._wire = self._endpoint.tls.wrap_socket(
                self.sock, server_hostname=name, do_handshake_on_connect=False
            )
            self.sock.do_handshake()


def unreachable_text(endpoint: ServerAddress, error: BaseException, late: float | None) -> str:
    """Return the message for a server that does not respond; `late` is the timeout in seconds if it has expired."""
    if late is not None:
        reason = f"timeout after {round(late, 3):g} s"
    elif isinstance(error, ssl.SSLCertVerificationError):
        return f"{endpoint.where} is not trusted ({error.verify_message}): {endpoint.tls_remedy}"
    else:
        reason = str(error) or error.__class__.__name__
    return f"{endpoint.where} does not respond ({reason}): {endpoint.remedy}"


@contextmanager
def _cut_after(seconds: float, connection: _Connection, late: threading.Event) -> Iterator[threading.Timer]:
    """Shut the connection down after `seconds`: a slow trickle of bytes never reaches the timeout of a socket."""
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
        # Not SSLSocket.shutdown: it drops the TLS session first, and a read would then return encrypted bytes.
        socket.socket.shutdown(connection.wire, socket.SHUT_RDWR)
    except OSError:
        return  # already closed, or not connected yet: the socket's timeout ends the attempt
