"""A storageUri taken apart, and how it may be shown. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import unquote, urlsplit

from serving.storage.errors import BadUri

FILE: Final = "file"
HTTP_SCHEMES: Final = frozenset({"http", "https"})
LONGEST_URI: Final = 4096  # characters; what servers take
_LOCAL_HOSTS: Final = frozenset({"", "localhost"})  # RFC 8089, 2


@dataclass(frozen=True, slots=True)
class StorageUri:
    """A checked URI: `scheme` is file, http or https; `host`, `port` and `target` (path and query) are for http.

    `path` is decoded; `shown` is what messages and logs may repeat: a query may be a signature.
    """

    text: str
    scheme: str
    host: str
    port: int | None
    path: str
    target: str
    shown: str

    @property
    def file_name(self) -> str:
        """The last part of the path; empty for a bare host."""
        return PurePosixPath(self.path).name


def parse_uri(text: str) -> StorageUri:
    """Take `text` apart. Raises BadUri."""
    if len(text) > LONGEST_URI or not text.isascii() or any(char <= " " or char == "\x7f" for char in text):
        raise BadUri(f"storageUri {text[:80]!r}: at most {LONGEST_URI} printable ASCII characters, others as %XX")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise BadUri(f"storageUri {text.partition('?')[0]!r}: {error}") from error
    if "@" in parts.netloc:
        raise BadUri(f"storageUri of host {parts.hostname!r}: credentials do not belong into a URI")
    shown = f"{parts.scheme}://{parts.netloc}{parts.path}"
    uri = StorageUri(
        text=text,
        scheme=parts.scheme,
        host=(parts.hostname or "").rstrip("."),
        port=port,
        path=unquote(parts.path),
        target=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
        shown=shown,
    )
    _check(uri, bool(parts.query or parts.fragment))
    return uri


def _check(uri: StorageUri, has_more: bool) -> None:
    if "\0" in uri.path:
        raise BadUri(f"storageUri {uri.shown}: a path has no NUL")
    if uri.scheme == FILE:
        if uri.host not in _LOCAL_HOSTS or not uri.path.startswith("/") or has_more:
            raise BadUri(f"storageUri {uri.shown}: write file:/// and an absolute path, nothing else")
    elif uri.scheme in HTTP_SCHEMES:
        if not uri.host:
            raise BadUri(f"storageUri {uri.shown}: it names no host")
    else:
        raise BadUri(f"storageUri {uri.shown}: this server reads file, http and https")
