"""Connections to a checked address: the host is resolved once, all its addresses are judged, and one is connected to.

Nothing is waited for longer than the artifact's deadline allows, by whatever small pieces a server sends its answer.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
from typing import Any, Final, cast

from clusters.net.ssrf import AddressRefused, check_addresses
from serving.storage.base.errors import Interrupted, StorageError
from serving.storage.transfer.addresses import Target
from serving.storage.transfer.deadline import Deadline
from serving.storage.transfer.limits import DownloadLimits

_SHORTEST: Final = 0.001  # s; a time-out of 0 would mean not to wait at all


class Connection(http.client.HTTPConnection):
    """A connection that is open, to the address `peer` of the target. Raises Interrupted, StorageError."""

    def __init__(
        self, target: Target, name: str, allowed: frozenset[str], limits: DownloadLimits, deadline: Deadline
    ) -> None:
        super().__init__(target.host, target.port)
        try:
            found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
            check_addresses(target.host, (str(info[4][0]) for info in found), allowed)
            sock, self.peer = _opened(found, limits, deadline)
            if target.scheme == "https":
                sock = ssl.create_default_context().wrap_socket(sock, server_hostname=target.host)
        except AddressRefused as error:
            raise StorageError(f"{name}: {error}") from error
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name with an endless label
            raise broken(f"{name}: host {target.host!r} cannot be reached", error) from error
        self.sock = cast(socket.socket, _Timed(sock, limits.silence, deadline))


class _Timed:
    """A socket as `http.client` uses it."""

    def __init__(self, sock: socket.socket, silence: float, deadline: Deadline) -> None:
        self.sendall = sock.sendall
        self.close = sock.close  # of `sock`; what `makefile` gave reads on until it is closed itself
        self._sock = sock
        self._silence = silence
        self._deadline = deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        """A file to read from."""
        return io.BufferedReader(_Reader(self._sock, self._silence, self._deadline))


class _Reader(io.RawIOBase):
    """What comes, no piece of which is waited for beyond the deadline."""

    def __init__(self, sock: socket.socket, silence: float, deadline: Deadline) -> None:
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._silence = silence
        self._deadline = deadline

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        """Raises Interrupted, OSError."""
        self._deadline.check()
        self._sock.settimeout(max(min(self._silence, self._deadline.left), _SHORTEST))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Close it, and the socket if that was asked for before."""
        self._raw.close()
        super().close()


def broken(what: str, error: Exception) -> StorageError:
    """What a failed connection is to the caller: Interrupted where another one may go better.

    Words without addresses or credentials.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return StorageError(f"{what}: its certificate is not trusted ({error.verify_message})")
    if isinstance(error, UnicodeError) or (isinstance(error, socket.gaierror) and error.errno == socket.EAI_NONAME):
        return StorageError(f"{what}: there is no such host")
    if isinstance(error, http.client.IncompleteRead):
        return Interrupted(f"{what}: it ended early")
    if isinstance(error, http.client.HTTPException) and not isinstance(error, OSError):  # which RemoteDisconnected is
        return StorageError(f"{what}: the answer is not HTTP")
    if isinstance(error, TimeoutError):
        return Interrupted(f"{what}: no answer in time")
    return Interrupted(f"{what}: {getattr(error, 'strerror', None) or type(error).__name__}")


def _opened(found: list[Any], limits: DownloadLimits, deadline: Deadline) -> tuple[socket.socket, str]:
    """A connection to the first address that answers, and that address; raises the last one's OSError, Interrupted."""
    failure = OSError("no address")
    for family, kind, protocol, _, address in found:
        deadline.check()
        try:
            return _open(family, kind, protocol, address, limits), str(address[0])
        except OSError as error:
            failure = error
    raise failure


def _open(
    family: socket.AddressFamily, kind: socket.SocketKind, protocol: int, address: Any, limits: DownloadLimits
) -> socket.socket:
    sock = socket.socket(family, kind, protocol)  # fails where the machine has no IPv6
    try:
        sock.settimeout(limits.connect)
        sock.connect(address)
        sock.settimeout(limits.silence)
    except OSError:
        sock.close()
        raise
    return sock
