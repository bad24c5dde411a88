"""Errors that the router answers with, besides `clusters.net.language_models.ModelNotSelected`.

RouterError      an error response: its status, and whether a retry may succeed
CallerLeft       the caller disconnected: no response is possible
BrokenOff        the response of the model ended early, after its head was sent on
"""

from __future__ import annotations

from clusters.base.errors import KnodelError


class RouterError(KnodelError):
    """An error response with `status`; `retry_after` in seconds, if a retry may succeed."""

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class CallerLeft(KnodelError):
    """The caller disconnected before its request was complete."""


class BrokenOff(KnodelError):
    """The response of the model ended before it was complete."""
