"""Errors that the webhook answers with when it does not accept an event. Each carries its HTTP status.

    BadEvent    400 not a CloudEvent, 401 unknown sender, 403 not permitted, 413 too large, 415 unknown format
    └── TryLater    429 over a limit, 503 cannot be stored at present; retry after `retry_after` seconds

Statuses follow CloudEvents HTTP webhook §2.2. A message is one line and quotes little of the sender's text
(`redact.quoted`).
"""

from __future__ import annotations

from http import HTTPStatus

from clusters.net.cloudevents import BadEvent


class TryLater(BadEvent):
    """The event is valid, but cannot be accepted now: the sender may retry it after `retry_after` seconds."""

    def __init__(self, status: HTTPStatus, message: str, retry_after: float = 1.0) -> None:
        super().__init__(status, message)
        self.retry_after = retry_after
