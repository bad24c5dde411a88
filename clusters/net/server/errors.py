"""Errors that become HTTP responses: a status, and the body `{"error": "…"}`."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from clusters.base.errors import KnodelError

RETRY_AFTER: Final = 1  # s; about the time in which a full queue drains
RECEIVED_KEY: Final = "knodel.received"
"""Key of the ASGI scope: when (the loop's time) the request was complete."""
REFUSED_KEY: Final = "knodel.refused"
"""Key of the ASGI scope: the status of a request that was refused while the application read its body."""

_ENCODE: Final = msgspec.json.Encoder().encode


class HttpError(KnodelError):
    """The base class of error responses.

    `str(error)` is sent to the caller, so it contains no paths and no tracebacks. `retry_after` is in seconds.
    """

    status: ClassVar[int] = 500
    retry_after: ClassVar[int | None] = None

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The extra headers of the response."""
        return [] if self.retry_after is None else [(b"retry-after", b"%d" % self.retry_after)]


class BadFraming(HttpError):
    """The request is not valid HTTP/1.1, or two parsers could read it differently."""

    status = 400


class HostNotAllowed(HttpError):
    """The Host or Origin of the request is not an allowed name."""

    status = 403


class RequestTooSlow(HttpError):
    """The head or the body of the request arrived too slowly."""

    status = 408


class RequestTooLarge(HttpError):
    """The body of the request exceeds the limit."""

    status = 413


class ResponsesUnread(HttpError):
    """Clients have left too much response data unread. A retry may succeed."""

    status = 429
    retry_after = RETRY_AFTER


class HeadTooLarge(HttpError):
    """The request has too many headers, or too large ones."""

    status = 431


def error_body(message: str) -> bytes:
    """Return the JSON body of an error: `{"error": message}`."""
    return _ENCODE({"error": message})
