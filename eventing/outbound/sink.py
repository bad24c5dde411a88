"""Where our own events go: an HTTP address that takes CloudEvents, such as a Knative Broker.

Statuses as Knative's senders read them (specs/eventing/data-plane.md): 2xx is taken; 404, 408, 409, 429 and 5xx are
tried again, as is no answer at all; any other no repetition helps. Redirects are not followed (CloudEvents HTTP webhook
§2).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final, Protocol

import aiohttp
import msgspec

from clusters.base.errors import KnodelError
from clusters.base.redact import one_line
from clusters.net.retry_after import parse_retry_after

STRUCTURED: Final = "application/cloudevents+json; charset=utf-8"
TIMEOUT: Final = 10.0
"""s for one answer: a sink only has to keep the event."""
RETRIED: Final = frozenset(
    {HTTPStatus.NOT_FOUND, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS}
)
LONGEST_PAUSE: Final = 3600.0
"""s: a sink that asks for more gets its event after that."""
SHOWN: Final = 200
"""Bytes of an answer that a message repeats."""


class NotDelivered(KnodelError):
    """The sink did not take an event; `again`: it may later, after `retry_after` seconds if it said so."""

    def __init__(self, message: str, *, again: bool, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.again = again
        self.retry_after = retry_after


class Sink(Protocol):
    """Takes events."""

    async def send(self, event: Mapping[str, Any]) -> str:
        """Hand over one event in CloudEvents' JSON format; returns what was answered. Raises NotDelivered."""
        ...

    async def close(self) -> None:
        """Nothing more is sent."""
        ...


class HttpSink:
    """A sink at `url`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session: aiohttp.ClientSession | None = None  # needs the loop that runs at the first event

    async def send(self, event: Mapping[str, Any]) -> str:
        """As `Sink` says, in structured mode."""
        session = self._session = self._session or aiohttp.ClientSession()
        try:
            async with session.post(
                self._url,
                data=msgspec.json.encode(event),
                headers={"Content-Type": STRUCTURED},
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=TIMEOUT),
            ) as answer:
                if answer.status < HTTPStatus.MULTIPLE_CHOICES:
                    return f"{self._url} answered {answer.status}"
                words = (await answer.content.read(SHOWN)).decode("utf-8", "replace")
                raise _refused(self._url, answer.status, one_line(words), answer.headers.get("Retry-After"))
        except (aiohttp.ClientError, OSError, ValueError) as exc:  # TimeoutError is an OSError, a bad URL a ValueError
            reason = str(exc) or type(exc).__name__
            raise NotDelivered(f"{self._url} did not answer: {reason}", again=True) from exc

    async def close(self) -> None:
        """End its connections."""
        if self._session is not None:
            await self._session.close()


def _refused(url: str, status: int, words: str, retry_after: str | None) -> NotDelivered:
    again = status in RETRIED or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    seconds = parse_retry_after(retry_after, datetime.now(UTC), least=0.0, most=LONGEST_PAUSE) or 0.0
    message = f"{url} answered {status}" + (f": {words}" if words else "")
    return NotDelivered(message, again=again, retry_after=seconds)
