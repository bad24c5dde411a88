"""URLs of model stores, parsed strictly. Pure. `clusters.net.ssrf` decides which addresses a host may have."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from clusters.base.redact import redact_url
from clusters.net.authority import url_host
from serving.storage.base.errors import StorageError

DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_LONGEST_HOST: Final = 253  # characters of a DNS name (RFC 1035, section 2.3.4, without the root label)


class HttpUrl(NamedTuple):
    """A parsed URL: `host` in lower case without brackets, `request_target` (path and query) as sent."""

    scheme: str
    host: str
    port: int
    request_target: str

    @property
    def origin(self) -> tuple[str, str, int]:
        """The origin (RFC 6454), which bounds the use of a credential."""
        return (self.scheme, self.host, self.port)

    @property
    def host_header(self) -> str:
        """The value of the Host header."""
        host = url_host(self.host)
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def parse_url(url: str) -> HttpUrl:
    """Parse an http or https URL.

    Raises StorageError for a user name, a bad port, and characters that URL parsers interpret differently.

    Example:
        parse_url("http://HOST/a?b").origin  # ("http", "host", 80)
    """
    name = redact_url(url)
    # urlsplit removes control characters silently, and other parsers read a backslash as a slash. The checked host and
    # the requested one could differ.
    if "\\" in url or " " in url or not url.isprintable():  # other white space is not printable
        raise StorageError(f"{name}: has a space, control character or backslash: percent-encode it")
    if not url.isascii():
        raise StorageError(f"{name}: has characters beyond ASCII: percent-encode them, and write the host in Punycode")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise StorageError(f"{name}: is not a URL ({error})") from error
    if parts.scheme not in DEFAULT_PORTS:
        raise StorageError(f"{name}: the scheme must be http or https")
    if "@" in parts.netloc:
        raise StorageError(f"{name}: a user name in a URL is not allowed: remove the part before the @")
    try:
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        host, port = "", None
    if not host or port == 0 or len(host) > _LONGEST_HOST or any(sign in host for sign in "%,;*"):
        raise StorageError(f"{name}: invalid host or port: write http://HOST:PORT/PATH")
    target = urlunsplit(("", "", parts.path or "/", parts.query, ""))
    return HttpUrl(parts.scheme, host, port or DEFAULT_PORTS[parts.scheme], target)


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
