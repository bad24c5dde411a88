"""What the webhook answers with when it does not take an event: one error, whose status is HTTP's.

    BadEvent    400 no CloudEvent, 401 nobody we know, 403 somebody who may not, 413 too large, 415 another format
    └── TryLater    429 too much at once, 503 cannot be kept now; `retry_after` seconds

Statuses by CloudEvents HTTP webhook §2.2; a message is one line and never repeats more than a little of what was sent.
"""

from __future__ import annotations

from http import HTTPStatus

from clusters.base.errors import KnodelError
from clusters.base.redact import truncate

SHOWN = 80
"""Characters of a sender's word that a message or a log line repeats."""


class BadEvent(KnodelError):
    """An event, or a whole request, that is not taken; `status` is what its sender is told."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class TryLater(BadEvent):
    """Nothing is wrong with the event: the same one may be taken after `retry_after` seconds."""

    def __init__(self, status: HTTPStatus, message: str, retry_after: float = 1.0) -> None:
        super().__init__(status, message)
        self.retry_after = retry_after


def shown(word: object) -> str:
    """A sender's word as messages and logs have it: short, on one line, without control characters."""
    return repr(truncate(str(word), SHOWN)).encode("ascii", "backslashreplace").decode()
