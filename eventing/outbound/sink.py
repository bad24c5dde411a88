"""The event sink: an HTTP URL that accepts CloudEvents, such as a Knative Broker.

Statuses are handled as Knative's senders do (specs/eventing/data-plane.md): 2xx is success; 404, 408, 409, 429, 5xx and
a missing response are retried; all others are permanent. Redirects are not followed (CloudEvents HTTP webhook §2).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final, Protocol

import msgspec

from clusters.base.errors import KnodelError
from clusters.base.redact import one_line
from clusters.net.client import FAILURES, HttpClient, failure_reason
from clusters.net.cloudevents import STRUCTURED
from clusters.net.retry_after import parse_retry_after

TIMEOUT: Final = 10.0
"""Seconds for one response: a sink only has to store the event."""
RETRIED: Final = frozenset(
    {HTTPStatus.NOT_FOUND, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS}
)
LONGEST_PAUSE: Final = 3600.0
"""Maximum seconds of a sink's Retry-After that are respected."""
QUOTED_LENGTH: Final = 200
"""Maximum bytes of a response that a message repeats."""


class NotDelivered(KnodelError):
    """The sink did not accept an event. `again`: a retry may succeed; `retry_after`: seconds before it, at least."""

    def __init__(self, message: str, *, again: bool, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.again = again
        self.retry_after = retry_after


class Sink(Protocol):
    """Accepts events."""

    async def send(self, event: Mapping[str, Any]) -> str:
        """Send one event in CloudEvents' JSON format; return a description of the response. Raises NotDelivered."""
        ...

    async def close(self) -> None:
        """Release resources; nothing is sent afterwards."""
        ...


class HttpSink:
    """A sink at the URL `url`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = HttpClient(TIMEOUT)

    async def send(self, event: Mapping[str, Any]) -> str:
        """Send one event in structured mode, as `Sink` specifies."""
        headers = {"Content-Type": f"{STRUCTURED}; charset=utf-8"}
        try:
            async with self._client.post(self._url, data=msgspec.json.encode(event), headers=headers) as response:
                status = response.status
                if status < HTTPStatus.MULTIPLE_CHOICES:
                    return f"{self._url} answered {status}"
                text = one_line((await response.content.read(QUOTED_LENGTH)).decode("utf-8", "replace"))
                now, retry_after = datetime.now(UTC), response.headers.get("Retry-After")
                raise NotDelivered(
                    f"{self._url} answered {status}" + (f": {text}" if text else ""),
                    again=status in RETRIED or status >= HTTPStatus.INTERNAL_SERVER_ERROR,
                    retry_after=parse_retry_after(retry_after, now, least=0.0, most=LONGEST_PAUSE) or 0.0,
                )
        except FAILURES as exc:
            raise NotDelivered(f"{self._url} did not answer: {failure_reason(exc)}", again=True) from exc

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()
