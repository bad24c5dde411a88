"""Errors of requests that cannot be forwarded, and the HTTP responses for them: `{"error": "…"}`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clusters.base.errors import KnodelError
from clusters.net.server.errors import error_body
from clusters.net.upstream import UpstreamError

Headers = Sequence[tuple[bytes, bytes]]

QUEUE_RETRY = 1  # s; a queue drains within about this time once a replica is ready
START_RETRY = 5  # s; the order of magnitude of a model's start


class MissingRevision(KnodelError):
    """The request names no revision, so it did not come through the gateway."""


class HoldQueueFull(KnodelError):
    """The hold queue of the revision is full."""


class HoldExpired(KnodelError):
    """No endpoint had a free slot in time."""


class RevisionFailed(KnodelError):
    """No replica of the revision can start."""


class UnknownRevision(KnodelError):
    """The revision is unknown or was removed."""


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """A complete response."""

    status: int
    headers: Headers
    body: bytes


def error_response(error: KnodelError) -> ErrorResponse:
    """Return the response to the caller for `error`: 404, 429, 502, 503, or 500 for any other error."""
    retry_after = None
    match error:
        case MissingRevision():
            status = 404
        case HoldQueueFull():
            status, retry_after = 429, QUEUE_RETRY
        case HoldExpired() | RevisionFailed():
            status, retry_after = 503, START_RETRY
        case UnknownRevision():
            status, retry_after = 503, QUEUE_RETRY
        case UpstreamError():
            status = 502
        case _:
            status = 500
    body = error_body(str(error))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if retry_after is not None:
        headers.append((b"retry-after", str(retry_after).encode()))
    return ErrorResponse(status, headers, body)
