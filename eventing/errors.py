"""Errors that the webhook answers with when it does not accept an event. Each carries its HTTP status.

    BadEvent    400 not a CloudEvent, 401 unknown sender, 403 not permitted, 413 too large, 415 unknown format
    └── TryLater    429 over a limit, 503 cannot be stored at present; retry after `retry_after` seconds

Statuses follow CloudEvents HTTP webhook §2.2. A message is one line and repeats at most `QUOTED_LENGTH` characters of
the sender's input.
"""

from __future__ import annotations

from http import HTTPStatus

from clusters.base.errors import KnodelError
from clusters.base.redact import truncate

QUOTED_LENGTH = 80
"""Maximum number of characters of a sender's text that a message or a log line repeats."""


class BadEvent(KnodelError):
    """An event, or a whole request, that is not accepted; `status` is the status of the response."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class TryLater(BadEvent):
    """The event is valid, but cannot be accepted now: the sender may retry it after `retry_after` seconds."""

    def __init__(self, status: HTTPStatus, message: str, retry_after: float = 1.0) -> None:
        super().__init__(status, message)
        self.retry_after = retry_after


def quoted(text: object) -> str:
    """Quote a sender's text for messages and logs: truncated, on one line, control characters escaped."""
    return repr(truncate(str(text), QUOTED_LENGTH)).encode("ascii", "backslashreplace").decode()
