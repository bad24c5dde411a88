"""Connections to checked addresses: a host is resolved once, all its addresses are checked, and one is connected to.

No read waits beyond the artifact's deadline, however small the pieces in which a server sends its response.
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
from serving.storage.base.errors import Interrupted, StorageError
from serving.storage.transfer.addresses import Target
from serving.storage.transfer.deadline import Deadline
from serving.storage.transfer.limits import DownloadLimits

Track = Callable[[socket.socket], None]
"""Called with each socket before it is used."""

_SHORTEST: Final = 0.001  # s; a time-out of 0 would mean not to wait at all
_QUICK_ACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)  # of Linux
_DRAIN_READS: Final = 16  # reads of the rest of a response whose connection is to be used again …
_DRAIN_SILENCE: Final = 1.0  # s; … how long each waits …
_DRAIN_BYTES: Final = 1 << 16  # … and how much they read together


class Connection(http.client.HTTPConnection):
    """An open connection to the address `peer` of the target; all `addresses` of its host were checked.

    Raises Interrupted, and StorageError when an address is refused.
    """

    auto_open = 0  # never reconnect: the address would not be checked

    def __init__(
        self, target: Target, name: str, allowed: frozenset[str], limits: DownloadLimits, deadline: Deadline,
        context: Callable[[], ssl.SSLContext], track: Track,
    ) -> None:  # fmt: skip
        super().__init__(target.host, target.port)
        self.origin = target.origin
        try:
            found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
            self.addresses = [str(info[4][0]) for info in found]
            check_addresses(target.host, self.addresses, allowed)
            sock, self.peer = _connect_to_first(found, limits, deadline, track)
            if target.scheme == "https":
                sock = _shake_hands(context(), sock, target.host, track)
        except AddressRefused as error:
            raise StorageError(f"{name}: {error}") from error
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name with a label that is too long
            raise translate(f"{name}: host {target.host!r} cannot be reached", error) from error
        self._timed = _Timed(sock, limits.silence, deadline)
        self.sock = cast(socket.socket, self._timed)

    def is_usable(self, allowed: frozenset[str]) -> bool:
        """Return whether a request with these allowed hosts may use the connection, and the server left it open."""
        try:
            check_addresses(self.host, self.addresses, allowed)
        except AddressRefused:
            return False
        return self._timed.is_quiet

    def finish(self, response: http.client.HTTPResponse) -> bool:
        """Close a response after reading its rest, if that is short; return whether another request may follow it."""
        self._timed.silence = min(self._timed.silence, _DRAIN_SILENCE)
        size = 0
        try:
            for _ in range(_DRAIN_READS):
                if self.sock is None or response.isclosed() or response.length == 0 or size > _DRAIN_BYTES:
                    break
                size += len(response.read1(_DRAIN_BYTES))
        except (OSError, http.client.HTTPException, Interrupted):
            return False
        finally:
            complete = not response.length and (response.isclosed() or response.length == 0)
            response.close()
        self._timed.silence = self._timed.longest_silence
        return complete and self.sock is not None and self._timed.is_quiet


class _Timed:
    """The part of a socket's interface that `http.client` uses, with timeouts that never exceed the deadline."""

    def __init__(self, sock: socket.socket, silence: float, deadline: Deadline) -> None:
        self.close = sock.close  # a file of `makefile` stays readable until it is closed too
        self.silence = self.longest_silence = silence
        self.surplus = False  # whether a server sent more than the response that was read
        self._sock = sock
        self._deadline = deadline

    def sendall(self, data: Any) -> None:
        """Send all bytes. Raises Interrupted, OSError."""
        self.set_timeout()
        self._sock.sendall(data)
        if _QUICK_ACK is not None:
            # Servers that write head and body apart wait for the first one's ACK (Nagle), which would come 40 ms late.
            self._sock.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a reader for one response."""
        return _ResponseReader(_Reader(self, self._sock))

    def set_timeout(self) -> None:
        """Set the time that the next operation may wait. Raises Interrupted when none is left."""
        self._deadline.check()
        self._sock.settimeout(max(min(self.silence, self._deadline.left), _SHORTEST))

    @property
    def is_quiet(self) -> bool:
        """Whether nothing came after the last response: neither its end of the connection nor bytes."""
        if self.surplus or (isinstance(self._sock, ssl.SSLSocket) and self._sock.pending()):
            return False
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return not poll.poll(0)


class _Reader(io.RawIOBase):
    """Reads from a socket, never waiting beyond the deadline."""

    def __init__(self, timed: _Timed, sock: socket.socket) -> None:
        self.timed = timed
        self.ended = False
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        """Read some bytes; None when the response has ended. Raises Interrupted, OSError."""
        if self.ended:
            return None
        self.timed.set_timeout()
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Close the file, and the socket if its `close` was called before."""
        self._raw.close()
        super().close()


class _ResponseReader(io.BufferedReader):
    """Buffers one response; bytes that are left in the buffer when it is closed belong to no response."""

    raw: _Reader

    def close(self) -> None:
        """Close it, and note bytes that are left: the next response could be mistaken for another."""
        if not self.closed:
            self.raw.ended = True
            self.raw.timed.surplus = self.raw.timed.surplus or bool(self.peek(1))
        super().close()


def translate(what: str, error: Exception) -> StorageError:
    """Return the StorageError for a failed connection: Interrupted where a retry may succeed.

    Its text has neither addresses nor credentials.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return StorageError(f"{what}: its certificate is not trusted ({error.verify_message})")
    if isinstance(error, UnicodeError) or (isinstance(error, socket.gaierror) and error.errno == socket.EAI_NONAME):
        return StorageError(f"{what}: there is no such host")
    if isinstance(error, http.client.IncompleteRead):
        return Interrupted(f"{what}: it ended early")
    if isinstance(error, http.client.HTTPException) and not isinstance(error, OSError):  # as RemoteDisconnected is
        return StorageError(f"{what}: the answer is not HTTP")
    if isinstance(error, TimeoutError):
        return Interrupted(f"{what}: no answer in time")
    return Interrupted(f"{what}: {getattr(error, 'strerror', None) or type(error).__name__}")


def _shake_hands(context: ssl.SSLContext, sock: socket.socket, host: str, track: Track) -> ssl.SSLSocket:
    """Return the socket with TLS. Raises OSError, after which the socket is closed."""
    encrypted = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    try:
        track(encrypted)
        encrypted.do_handshake()
    except BaseException:
        encrypted.close()
        raise
    return encrypted


def _connect_to_first(
    found: list[Any], limits: DownloadLimits, deadline: Deadline, track: Track
) -> tuple[socket.socket, str]:
    """Connect to the first address that answers; return the socket and the address.

    Raises the OSError of the last one, Interrupted.
    """
    failure = OSError("no address")
    for family, kind, protocol, _, address in found:
        try:
            sock = socket.socket(family, kind, protocol)  # fails where the machine has no IPv6
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
