"""Headers of one connection (RFC 9110, 7.6.1), which proxies do not pass on. Names are in lower case. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

HOP_BY_HOP: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
     b"trailer", b"transfer-encoding", b"upgrade"}
)  # fmt: skip


def connection_options(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Return the headers that `Connection` lists, except length and host, which a caller must not remove."""
    values = [value for name, value in headers if name == b"connection"]
    options = frozenset(option.strip().lower() for value in values for option in value.split(b","))
    return options - {b"content-length", b"host"}
