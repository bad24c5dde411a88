"""Downloads over HTTP: each hop is resolved, checked and then connected to; the bytes are hashed as they come.

It blocks, as loading does anyway, and stands on the standard library: an HTTP client would cost a start more than the
download of a small model. No proxy of the environment is used, and no credentials are sent.
"""

from __future__ import annotations

import hashlib
import http.client
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO, Final
from urllib.parse import urldefrag, urljoin

from serving.storage.addresses import Target, allowed_after, check_addresses, parse, shown
from serving.storage.digest import PREFIX
from serving.storage.disk import LARGEST_FILE
from serving.storage.errors import StorageError

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


class Downloader:
    """Gets files by GET, following redirects; `allow_hosts` as in `addresses.check_addresses` and `allowed_after`."""

    def __init__(
        self,
        allow_hosts: frozenset[str],
        limits: DownloadLimits | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._allow_hosts = allow_hosts
        self._limits = limits or DownloadLimits()
        self._monotonic = monotonic

    def download(self, url: str, into: BinaryIO) -> str:
        """Write the content into `into` and return its digest (`sha256:…`). Raises StorageError."""
        deadline = self._monotonic() + self._limits.total
        name = shown(url)
        hop, allowed = urldefrag(url).url, self._allow_hosts
        for _ in range(self._limits.redirects + 1):
            target = parse(hop)
            connection = self._connect(target, name, allowed)
            try:
                allowed = allowed_after(str(connection.sock.getpeername()[0]), allowed)
                with _ask(connection, target) as response:
                    if response.status not in _REDIRECTS:
                        return self._receive(name, response, into, deadline)
                    hop = _redirected(name, hop, response.headers.get("Location"))
            except (OSError, http.client.HTTPException) as error:
                raise StorageError(f"{name}: cannot be downloaded: {_reason(error)}") from error
            finally:
                connection.close()
        raise StorageError(f"{name}: cannot be downloaded: more than {self._limits.redirects} redirects")

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
            raise StorageError(f"{name}: host {target.host!r} cannot be reached: {_reason(error)}") from error
        return connection

    def _open(self, found: list[Any]) -> socket.socket:
        """A connection to the first address that answers; raises the last one's OSError."""
        failure = OSError("no address")
        for family, kind, protocol, _, address in found:
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(self._limits.connect)
                sock.connect(address)
                sock.settimeout(self._limits.silence)
            except OSError as error:
                sock.close()
                failure = error
            else:
                return sock
        raise failure

    def _receive(self, name: str, response: http.client.HTTPResponse, into: BinaryIO, deadline: float) -> str:
        _check_head(name, response)
        announced = response.length  # None when chunked
        if announced is not None and announced > self._limits.size:
            raise StorageError(f"{name}: has {announced} bytes, and {self._limits.size} is the limit")
        digest, received = hashlib.sha256(), 0
        while chunk := response.read1(_CHUNK):
            received += len(chunk)
            if received > self._limits.size:
                raise StorageError(f"{name}: has more than {self._limits.size} bytes, the limit")
            if self._monotonic() > deadline:
                raise StorageError(f"{name}: cannot be downloaded: not complete after {self._limits.total:g} s")
            digest.update(chunk)
            into.write(chunk)
        if announced is not None and received != announced:
            raise StorageError(f"{name}: cannot be downloaded: it ended after {received} of {announced} bytes")
        return PREFIX + digest.hexdigest()


def _ask(connection: http.client.HTTPConnection, target: Target) -> http.client.HTTPResponse:
    headers = {"Host": target.host_header, "Accept-Encoding": "identity", "User-Agent": "knodel"}
    connection.request("GET", target.request_target, headers=headers)
    return connection.getresponse()


def _check_head(name: str, response: http.client.HTTPResponse) -> None:
    if response.status != http.client.OK:
        raise StorageError(f"{name}: cannot be downloaded: the server answered {response.status}")
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise StorageError(f"{name}: cannot be downloaded: the server sent it compressed, though not asked to")


def _redirected(name: str, hop: str, location: str | None) -> str:
    """The next address, absolute; `parse` checks it as it did the first."""
    if not location:
        raise StorageError(f"{name}: cannot be downloaded: it redirects to nowhere")
    target = urldefrag(urljoin(hop, location)).url
    if hop.lower().startswith("https:") and not target.lower().startswith("https:"):
        raise StorageError(f"{name}: cannot be downloaded: it redirects from https to {target.partition(':')[0][:20]}")
    return target


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, http.client.IncompleteRead):
        return "it ended early"
    if isinstance(error, http.client.HTTPException):
        return "the answer is not HTTP"
    return getattr(error, "strerror", None) or type(error).__name__
