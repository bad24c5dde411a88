"""Validate the heads of requests, which prevents request smuggling: all parties must agree where a request ends. Pure.

The parser (llhttp) accepts requests that RFC 9112 forbids, or leaves to the server: a missing Host, two lengths, any
number of headers. The rules, their sources and their status:

1. at most `ConnectionLimits.head` bytes and `ConnectionLimits.headers` headers    431
2. HTTP/1.1 has exactly one Host (RFC 9112, 3.2)                                   400
3. not both Content-Length and Transfer-Encoding (6.1), one Content-Length         400
4. Transfer-Encoding is `chunked`, nothing else (6.1), and not in HTTP/1.0         400
5. the target is a path (3.2.1): no absolute form, which names a second host       400
6. a body of at most `ConnectionLimits.body` bytes, when its length is announced   413
7. no upgrade of a request with a body: the parser would drop the body             400
8. Host and Origin are known names, where `ConnectionLimits.hosts` lists them      403
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from clusters.base.sizes import format_size
from clusters.net.hosts import KnownHosts
from clusters.net.server.errors import BadFraming, HeadTooLarge, HostNotAllowed, HttpError, RequestTooLarge
from clusters.net.server.limits import ConnectionLimits

Headers = Sequence[tuple[bytes, bytes]]
"""Names in lower case, and values."""

_FRAMING: Final = frozenset({b"host", b"content-length", b"transfer-encoding", b"upgrade"})
_GUARDED: Final = _FRAMING | {b"origin"}
_PER_HEADER: Final = 4  # bytes: colon, space, line end
_MAX_LENGTH_DIGITS: Final = 19  # digits of a plausible Content-Length


def find_head_error(http_version: str, target: bytes, headers: Headers, limits: ConnectionLimits) -> HttpError | None:
    """Return the error for a head that must be refused, or None for a valid head."""
    if len(headers) > limits.headers:
        return HeadTooLarge(f"too many headers: a request may have at most {limits.headers}")
    size, found = len(target), []
    kept = _FRAMING if limits.hosts is None else _GUARDED
    for name, value in headers:
        size += len(name) + len(value) + _PER_HEADER
        if name in kept:
            found.append((name, value))
    if size > limits.head:
        return HeadTooLarge(f"the headers are too large: at most {format_size(limits.head)} are allowed")
    if not target.startswith(b"/"):
        return BadFraming("the request target is not a path")
    if len(found) == 1 and found[0][0] == b"host":
        return None if limits.hosts is None else _check_hosts(limits.hosts, found)
    refused = _framing(http_version, found, limits)
    return refused if refused is not None or limits.hosts is None else _check_hosts(limits.hosts, found)


def _framing(http_version: str, found: Headers, limits: ConnectionLimits) -> HttpError | None:
    values: dict[bytes, list[bytes]] = {}
    for name, value in found:
        values.setdefault(name, []).append(value)
    hosts, lengths = values.get(b"host", []), values.get(b"content-length", [])
    encodings = values.get(b"transfer-encoding", [])
    if len(hosts) > 1 or (not hosts and http_version == "1.1"):
        return BadFraming("a request must have exactly one Host header")
    if len(lengths) > 1 or (lengths and encodings):
        return BadFraming("a request must have one Content-Length or a Transfer-Encoding, not both")
    if encodings and (http_version != "1.1" or [value.strip().lower() for value in encodings] != [b"chunked"]):
        return BadFraming("unsupported Transfer-Encoding: only chunked is allowed, and only in HTTP/1.1")
    if lengths and (not lengths[0].isdigit() or len(lengths[0]) > _MAX_LENGTH_DIGITS):
        return BadFraming("Content-Length is not a number")
    if lengths and int(lengths[0]) > limits.body:
        return RequestTooLarge(f"the request is too large: at most {format_size(limits.body)} are allowed")
    if b"upgrade" in values and (encodings or (lengths and int(lengths[0]))):
        return BadFraming("a request with a body cannot be upgraded to another protocol")
    return None


def _check_hosts(hosts: KnownHosts, found: Headers) -> HttpError | None:
    """Return an error for a Host or Origin that is not allowed, which blocks requests from other web pages."""
    values = {b"host": None, b"origin": None} | {name: value.decode("latin-1") for name, value in found}
    several = len([name for name, _ in found if name == b"origin"]) > 1
    reason = hosts.refusal(values[b"host"], "several" if several else values[b"origin"])
    return None if reason is None else HostNotAllowed(reason)
