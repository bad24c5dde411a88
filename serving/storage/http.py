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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final
from urllib.parse import urljoin

from serving.storage.address_policy import AddressPolicy
from serving.storage.errors import AddressDenied, BadUri, DownloadFailed, TooLarge
from serving.storage.uri import HTTP_SCHEMES, StorageUri, parse_uri

_PORTS: Final = {"http": 80, "https": 443}
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_CHUNK: Final = 1 << 18  # bytes between two looks at the limits


@dataclass(frozen=True, slots=True)
class DownloadLimits:
    """Bounds of one download; seconds and bytes."""

    connect: float = 10.0  # of one connection attempt
    silence: float = 30.0  # without a byte
    total: float = 3600.0  # even of a server that drips; the startup deadline of a model is rarely longer
    size: int = 16 << 30  # what the server reads of one file at most
    redirects: int = 5


class Downloader:
    """Gets files by GET, following redirects."""

    def __init__(
        self,
        policy: AddressPolicy,
        limits: DownloadLimits | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy
        self._limits = limits or DownloadLimits()
        self._monotonic = monotonic

    def download(self, uri: StorageUri, into: BinaryIO) -> str:
        """Write the content into `into` and return its hexadecimal SHA-256.

        Raises AddressDenied, BadUri, DownloadFailed, TooLarge.
        """
        deadline = self._monotonic() + self._limits.total
        try:
            return self._follow(uri, into, deadline)
        except (OSError, http.client.HTTPException) as error:
            raise DownloadFailed(f"cannot download {uri.shown}: {_reason(error)}") from error

    def _follow(self, uri: StorageUri, into: BinaryIO, deadline: float) -> str:
        hop = uri
        for _ in range(self._limits.redirects + 1):
            connection = self._connect(hop)
            try:
                connection.request("GET", hop.target, headers={"Accept-Encoding": "identity", "User-Agent": "knodel"})
                response = connection.getresponse()
                if response.status not in _REDIRECTS:
                    return self._receive(uri, response, into, deadline)
                hop = _redirected(uri, hop, response.headers.get("Location"))
            finally:
                connection.close()
        raise DownloadFailed(f"cannot download {uri.shown}: more than {self._limits.redirects} redirects")

    def _connect(self, hop: StorageUri) -> http.client.HTTPConnection:
        """A connection that is open to a checked address. Raises AddressDenied, OSError."""
        port = hop.port or _PORTS[hop.scheme]
        found = socket.getaddrinfo(hop.host, port, type=socket.SOCK_STREAM)
        allowed = [info for info in found if self._policy.permits(hop.host, str(info[4][0]))]
        if not allowed:
            raise AddressDenied(
                f"{hop.shown}: host {hop.host!r} is at no public address; allow it by KNODEL_ALLOW_HOSTS if it is meant"
            )
        connection = http.client.HTTPConnection(hop.host, port, timeout=self._limits.silence)
        connection.sock = self._open(allowed)
        if hop.scheme == "https":
            context = ssl.create_default_context()
            connection.sock = context.wrap_socket(connection.sock, server_hostname=hop.host)
        return connection

    def _open(self, infos: Sequence[tuple[Any, ...]]) -> socket.socket:
        """The first address that answers; raises the last one's OSError."""
        failure: OSError = OSError("no address")
        for family, kind, protocol, _, address in infos:
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

    def _receive(self, uri: StorageUri, response: http.client.HTTPResponse, into: BinaryIO, deadline: float) -> str:
        _check_head(uri, response)
        announced = response.length  # None when chunked
        if announced is not None and announced > self._limits.size:
            raise TooLarge(f"{uri.shown} has {announced} bytes: at most {self._limits.size} are downloaded")
        digest, received = hashlib.sha256(), 0
        while chunk := response.read1(_CHUNK):
            received += len(chunk)
            if received > self._limits.size:
                raise TooLarge(f"{uri.shown} has more than {self._limits.size} bytes")
            if self._monotonic() > deadline:
                raise DownloadFailed(f"cannot download {uri.shown}: not complete after {self._limits.total:g} s")
            digest.update(chunk)
            into.write(chunk)
        if announced is not None and received != announced:
            raise DownloadFailed(f"cannot download {uri.shown}: it ended after {received} of {announced} bytes")
        return digest.hexdigest()


def _check_head(uri: StorageUri, response: http.client.HTTPResponse) -> None:
    if response.status != http.client.OK:
        raise DownloadFailed(f"cannot download {uri.shown}: the server answered {response.status}")
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise DownloadFailed(f"cannot download {uri.shown}: the server sent it compressed though not asked to")


def _redirected(uri: StorageUri, hop: StorageUri, location: str | None) -> StorageUri:
    try:
        target = parse_uri(urljoin(hop.text, location or "").partition("#")[0])
    except (BadUri, ValueError) as error:
        raise DownloadFailed(f"cannot download {uri.shown}: it redirects to what is no http address") from error
    if not location or target.scheme not in HTTP_SCHEMES:
        raise DownloadFailed(f"cannot download {uri.shown}: it redirects to what is no http address")
    if hop.scheme == "https" and target.scheme == "http":
        raise DownloadFailed(f"cannot download {uri.shown}: it redirects from https to http")
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
