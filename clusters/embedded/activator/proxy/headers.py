"""Select the headers that are forwarded to the endpoint and to the caller, and write the request's head.

Hop-by-hop headers (RFC 9110, 7.6.1) are removed, as each side has its own framing. `Host` is kept, because the server
finds the model's name in it. The gateway's routing headers are removed, as in Knative's activator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from clusters.base.objects import Key
from clusters.embedded.activator.proxy.errors import MissingRevision
from clusters.gateway.token import HEADER, is_valid
from clusters.net.hop_by_hop import HOP_BY_HOP, connection_options

HEADER_NAMESPACE = b"knative-serving-namespace"
HEADER_REVISION = b"knative-serving-revision"
HEADER_TOKEN = HEADER.lower().encode()

NOT_FORWARDED = HOP_BY_HOP | {HEADER_NAMESPACE, HEADER_REVISION, HEADER_TOKEN, b"expect"}
"""`Expect` is removed, too: it is answered when the body is read, which is after an endpoint was found."""

RawHeaders = Iterable[tuple[bytes, bytes]]


def revision_of(headers: RawHeaders) -> Key:
    """Return the revision that the gateway chose for this request.

    Raises MissingRevision when it did not pass the gateway.
    """
    found = {name: value for name, value in headers if name in (HEADER_NAMESPACE, HEADER_REVISION)}
    try:
        return Key(found[HEADER_NAMESPACE].decode("ascii"), found[HEADER_REVISION].decode("ascii"))
    except (KeyError, UnicodeDecodeError) as error:
        raise MissingRevision("no model at this address: send requests to the gateway, not to the activator") from error


def is_from_gateway(headers: RawHeaders, token: bytes) -> bool:
    """Return whether a request with these headers passed the gateway; `token` is the activator's, empty for none."""
    return bool(token) and any(name == HEADER_TOKEN and is_valid(value, token) for name, value in headers)


def is_chunked(headers: RawHeaders) -> bool:
    """Return whether the length of the body is unknown."""
    return any(name == b"transfer-encoding" for name, _ in headers)


def has_body(headers: RawHeaders) -> bool:
    """Return whether the request has a body (RFC 9112, 6)."""
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0") for name, value in headers
    )


def request_head(scope: Mapping[str, Any], token: bytes = b"") -> bytes:
    """Return the head to send to the endpoint, from an ASGI scope. `token` is the endpoint's; empty to send none."""
    headers = scope["headers"]
    chunked = is_chunked(headers)
    drop = NOT_FORWARDED | connection_options(headers) | ({b"content-length"} if chunked else frozenset())
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    lines = [scope["method"].encode("ascii") + b" " + (target or b"/") + b" HTTP/1.1"]
    lines += [name + b": " + value for name, value in headers if name not in drop]
    if token:
        lines.append(HEADER_TOKEN + b": " + token)
    if chunked:
        lines.append(b"transfer-encoding: chunked")
    return b"\r\n".join(lines) + b"\r\n\r\n"


def response_headers(headers: RawHeaders) -> list[tuple[bytes, bytes]]:
    """Return the headers of the endpoint that are forwarded to the caller."""
    kept = list(headers)
    drop = HOP_BY_HOP | connection_options(kept)
    return [(name, value) for name, value in kept if name not in drop]
