"""Connections to checked addresses: resolve a host once, check all its addresses, and connect to one of them.

No operation waits beyond the artifact's deadline, even if the server sends its response byte by byte.
"""

from __future__ import annotations

import http.client
import io
import select
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

from clusters.net.ssrf import AddressRefused, check_addresses
from serving.storage.base.errors import StorageError, TransferInterrupted
from serving.storage.transfer.limits import TransferDeadline, TransferLimits
from serving.storage.transfer.urls import HttpUrl

Track = Callable[[socket.socket], None]
"""Called with each new socket before its first use."""

_SHORTEST: Final = 0.001  # s; a timeout of 0 would make the socket non-blocking
_QUICK_ACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)  # Linux only
_SENT_AT_ONCE: Final = 1 << 16  # bytes of a request's body
_DRAIN_READS: Final = 16  # reads of the rest of a response, so that its connection can be used again
_DRAIN_SILENCE: Final = 1.0  # s for each of these reads
_DRAIN_BYTES: Final = 1 << 16  # in all these reads together


class Connection(http.client.HTTPConnection):
    """An open connection to the address `peer` of a URL's host, all `addresses` of which were checked.

    `context` returns the TLS settings. Raises TransferInterrupted, and StorageError when an address is refused.
    """

    auto_open = 0  # never reconnect: `http.client` would not check the address

    def __init__(
        self, url: HttpUrl, name: str, allowed: frozenset[str], limits: TransferLimits, deadline: TransferDeadline,
        context: Callable[[], ssl.SSLContext], track: Track,
    ) -> None:  # fmt: skip
        super().__init__(url.host, url.port, blocksize=_SENT_AT_ONCE)
        self.origin = url.origin
        try:
            found = socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
            self.addresses = [str(info[4][0]) for info in found]
            check_addresses(url.host, self.addresses, allowed)
            sock, self.peer = _connect_to_first(found, limits, deadline, track)
            if url.scheme == "https":
                sock = _start_tls(context(), sock, url.host, track)
        except AddressRefused as error:
            raise StorageError(f"{name}: {error}") from error
        except (OSError, UnicodeError) as error:  # UnicodeError: a label of the host name is too long
            raise translate(f"{name}: host {url.host!r} cannot be reached", error) from error
        self._timed = _DeadlineSocket(sock, limits.silence, deadline)
        self.sock = cast(socket.socket, self._timed)

    def is_usable(self, allowed: frozenset[str]) -> bool:
        """Return whether a request with these allowed hosts may use the connection and the server has not closed it."""
        try:
            check_addresses(self.host, self.addresses, allowed)
        except AddressRefused:
            return False
        return self._timed.is_quiet

    def finish(self, response: http.client.HTTPResponse) -> bool:
        """Close a response after reading a short rest of it; return whether the connection can be used again."""
        self._timed.silence = min(self._timed.silence, _DRAIN_SILENCE)
        size = 0
        try:
            for _ in range(_DRAIN_READS):
                if self.sock is None or response.isclosed() or response.length == 0 or size > _DRAIN_BYTES:
                    break
                size += len(response.read1(_DRAIN_BYTES))
        except (OSError, http.client.HTTPException, TransferInterrupted):
            return False
        finally:
            complete = not response.length and (response.isclosed() or response.length == 0)
            response.close()
        self._timed.silence = self._timed.longest_silence
        return complete and self.sock is not None and self._timed.is_quiet


class _DeadlineSocket:
    """The methods of a socket that `http.client` calls, with timeouts that end at the deadline."""

    def __init__(self, sock: socket.socket, silence: float, deadline: TransferDeadline) -> None:
        self.close = sock.close  # a file from `makefile` stays readable until it is closed too
        self.silence = self.longest_silence = silence
        self.surplus = False  # True after bytes beyond the end of a response
        self._sock = sock
        self._deadline = deadline

    def sendall(self, data: Any) -> None:
        """Send all bytes. Raises TransferInterrupted, OSError."""
        self.set_timeout()
        self._sock.sendall(data)
        if _QUICK_ACK is not None:
            # A server that writes head and body separately waits for the ACK of the head (Nagle), delayed by 40 ms.
            self._sock.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a reader for one response."""
        return _ResponseReader(_Reader(self, self._sock))

    def set_timeout(self) -> None:
        """Set the timeout of the next operation. Raises TransferInterrupted at the deadline."""
        self._deadline.check()
        self._sock.settimeout(max(min(self.silence, self._deadline.left), _SHORTEST))

    @property
    def is_quiet(self) -> bool:
        """True while the server has neither closed the connection nor sent bytes after the last response."""
        if self.surplus or (isinstance(self._sock, ssl.SSLSocket) and self._sock.pending()):
            return False
        if not hasattr(select, "poll"):  # Windows
            return not select.select([self._sock], [], [], 0)[0]
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return not poll.poll(0)


class _Reader(io.RawIOBase):
    """Reads from a socket, with a timeout that ends at the deadline."""

    def __init__(self, timed: _DeadlineSocket, sock: socket.socket) -> None:
        self.timed = timed
        self.ended = False
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        """Read some bytes; return None after the end of the response. Raises TransferInterrupted, OSError."""
        if self.ended:
            return None
        self.timed.set_timeout()
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Close the file, and the socket if its `close` was called before."""
        self._raw.close()
        super().close()


class _ResponseReader(io.BufferedReader):
    """Buffers one response, and detects bytes after its end."""

    raw: _Reader

    def close(self) -> None:
        """Close the reader. Bytes left in the buffer set `surplus`, as they could be taken for the next response."""
        if not self.closed:
            self.raw.ended = True
            self.raw.timed.surplus = self.raw.timed.surplus or bool(self.peek(1))
        super().close()


def translate(what: str, error: Exception) -> StorageError:
    """Return the StorageError for a failed connection: TransferInterrupted where a retry may succeed.

    Its text contains neither addresses nor credentials.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return StorageError(f"{what}: its certificate is not trusted ({error.verify_message})")
    if isinstance(error, UnicodeError) or (isinstance(error, socket.gaierror) and error.errno == socket.EAI_NONAME):
        return StorageError(f"{what}: there is no such host")
    if isinstance(error, http.client.IncompleteRead):
        return TransferInterrupted(f"{what}: it ended early")
    if isinstance(error, http.client.HTTPException) and not isinstance(error, OSError):  # as RemoteDisconnected is
        return StorageError(f"{what}: the response is not HTTP")
    if isinstance(error, TimeoutError):
        return TransferInterrupted(f"{what}: no response in time")
    return TransferInterrupted(f"{what}: {getattr(error, 'strerror', None) or type(error).__name__}")


def _start_tls(context: ssl.SSLContext, sock: socket.socket, host: str, track: Track) -> ssl.SSLSocket:
    """Return the socket after the TLS handshake. On OSError the socket is closed."""
    encrypted = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    try:
        track(encrypted)
        encrypted.do_handshake()
    except BaseException:
        encrypted.close()
        raise
    return encrypted


def _connect_to_first(
    found: list[Any], limits: TransferLimits, deadline: TransferDeadline, track: Track
) -> tuple[socket.socket, str]:
    """Connect to the first address that accepts; return the socket and the address.

    Raises the OSError of the last address, TransferInterrupted.
    """
    failure = OSError("no address")
    for family, kind, protocol, _, address in found:
        try:
            sock = socket.socket(family, kind, protocol)  # fails on a machine without IPv6
            try:
                track(sock)
                deadline.check()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.settimeout(limits.connect)
                sock.connect(address)
                sock.settimeout(limits.silence)
            except BaseException:
                sock.close()
                raise
            return sock, str(address[0])
        except OSError as error:
            failure = error
    raise failure
