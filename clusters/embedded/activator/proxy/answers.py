"""The activator's own responses to faults. All errors are `{"error": "…"}`. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from clusters.base.errors import KnodelError
from clusters.embedded.activator.proxy.errors import HoldExpired, HoldQueueFull, StartFailed, UnknownRevision
from clusters.embedded.activator.proxy.upstream import UpstreamError

Headers = Sequence[tuple[bytes, bytes]]

FULL_RETRY = 1  # s; a queue of held requests drains within about this once a replica is up
START_RETRY = 5  # s; the order of a model's start


class NotOurs(KnodelError):
    """The request names no revision, so it did not come through the gateway."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete response."""

    status: int
    headers: Headers
    body: bytes


def error_body(message: str) -> bytes:
    """Return the JSON body of an error."""
    return json.dumps({"error": message}).encode()


def answer_to(error: KnodelError) -> Answer:
    """Return the response to the caller for `error`."""
    match error:
        case NotOurs():
            return _answer(404, error)
        case HoldQueueFull():
            return _answer(429, error, FULL_RETRY)
        case HoldExpired() | StartFailed():
            return _answer(503, error, START_RETRY)
        case UnknownRevision():
            return _answer(503, error, FULL_RETRY)
        case UpstreamError():
            return _answer(502, error)
        case _:
            return _answer(500, error)


def _answer(status: int, error: KnodelError, retry_after: int | None = None) -> Answer:
    body = error_body(str(error))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if retry_after is not None:
        headers.append((b"retry-after", str(retry_after).encode()))
    return Answer(status, headers, body)
