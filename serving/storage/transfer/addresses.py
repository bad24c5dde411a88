"""URLs of model stores: split strictly, and shown without credentials. Pure.

Which addresses a host may have is decided by `clusters.net.ssrf`.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, urlsplit, urlunsplit

import msgspec

from clusters.net.authority import url_host
from serving.storage.base.errors import StorageError

DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class Target(msgspec.Struct, frozen=True):
    """A URL that may be asked for, once its addresses are checked: `host` in lower case, without brackets."""

    scheme: str
    host: str
    port: int
    request_target: str  # path and query as sent in the request line

    @property
    def origin(self) -> tuple[str, str, int]:
        """What a credential may be sent to (RFC 6454)."""
        return (self.scheme, self.host, self.port)

    @property
    def host_header(self) -> str:
        """The value of the Host header."""
        host = url_host(self.host)
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def parse(url: str) -> Target:
    """Split a http(s) URL. Raises StorageError for user names in it, a bad port, and signs that parsers disagree on."""
    parts = _split(url)
    if parts.scheme not in DEFAULT_PORTS:
        raise StorageError(f"{shown(url)}: the scheme must be http or https")
    if "@" in parts.netloc:
        raise StorageError(f"{shown(url)}: a user name in the address is refused: remove what is before the @")
    try:
        host, port = parts.hostname, parts.port
        encoded = _encoded(host or "")
    except ValueError as error:
        raise StorageError(f"{shown(url)}: host or port cannot be understood: write http://HOST:PORT/PATH") from error
    if not encoded or port == 0:
        raise StorageError(f"{shown(url)}: has no host or a bad port: write http://HOST:PORT/PATH")
    target = urlunsplit(("", "", parts.path or "/", parts.query, ""))
    return Target(parts.scheme, encoded, port or DEFAULT_PORTS[parts.scheme], target)


def is_file_uri(uri: str) -> bool:
    """Return whether the URI names a file or folder of this machine."""
    return uri.lower().startswith("file:")


def with_lower_scheme(uri: str) -> str:
    """Return the URI with its scheme in lower case: schemes are case-insensitive (RFC 3986, section 3.1).

    Example:
        with_lower_scheme("HTTPS://models.example/M.onnx")  # "https://models.example/M.onnx"
    """
    scheme, separator, rest = uri.partition("://")
    return f"{scheme.lower()}{separator}{rest}" if separator else uri


def shown(uri: str) -> str:
    """The URI as messages may show it: without password and query (they can carry tokens), on one line."""
    whole, query, _ = uri.partition("#")[0].partition("?")
    head, at, tail = whole.partition("://")
    if at:
        authority, slash, path = tail.partition("/")
        _, colon, port = authority.rpartition("@")[2].rpartition(":")
        broken = bool(colon) and not port.isdigit() and not port.endswith("]")  # a password with a slash in it
        tail = tail.rpartition("@")[2] if broken else f"{authority.rpartition('@')[2]}{slash}{path}"
    else:
        head = head.rpartition("@")[2]
    text = f"{head}{at}{tail}" + ("?…" if query else "")
    return "".join(sign if sign.isprintable() else "�" for sign in text)[:500]


def _split(url: str) -> SplitResult:
    # urlsplit strips such signs silently, and other parsers read a backslash as a slash: what was checked and what is
    # asked for could differ.
    if "\\" in url or " " in url or not url.isprintable():  # all other white space is not printable
        raise StorageError(f"{shown(url)}: has a space, control sign or backslash: percent-encode it")
    if not url.isascii():
        raise StorageError(f"{shown(url)}: has signs beyond ASCII: percent-encode them, and write the host in Punycode")
    try:
        return urlsplit(url)
    except ValueError as error:
        raise StorageError(f"{shown(url)}: is no URL ({error})") from error


def _encoded(host: str) -> str:
    if any(sign in host for sign in "%,;*") or len(host) > 253:
        raise ValueError(host)
    return host.lower()
