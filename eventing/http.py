"""HTTP for the webhook over ASGI: bounded request bodies, single headers, JSON responses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.types import Receive, Send

from clusters.base.sizes import format_size
from clusters.net.cloudevents import BadEvent
from eventing.errors import TryLater
from eventing.limits import ByteBudget

Headers = Iterable[tuple[bytes, bytes]]
"""Request headers as in an ASGI scope; names are in lower case."""
JSON: Final = b"application/json"


class ClientDisconnected(Exception):
    """The sender closed the connection before its request was complete, so no response is possible."""


@dataclass(frozen=True, slots=True)
class WebhookResponse:
    """A response of the webhook. `body` is encoded as JSON, None for no body; `errors` are logged, not sent."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    errors: Sequence[BadEvent] = ()


def single_header(headers: Headers, name: bytes) -> bytes:
    """Return the header's value, empty without one.

    Raises BadEvent (400) for two such headers: a proxy and the webhook could each read a different one.
    """
    found = [value for key, value in headers if key == name]
    if len(found) > 1:
        raise BadEvent(HTTPStatus.BAD_REQUEST, f"the request has two headers {name.decode()}")
    return found[0] if found else b""


class RequestBody:
    """A context manager that reads one request's body and holds its bytes in `budget` until the block ends.

    `limit`: maximum number of bytes; `peer`: the address of the sender, for its share of the budget.
    """

    def __init__(self, headers: Headers, receive: Receive, limit: int, budget: ByteBudget, peer: str) -> None:
        self._headers = headers
        self._receive = receive
        self._limit = limit
        self._budget = budget
        self._peer = peer
        self._size = 0

    def __enter__(self) -> RequestBody:
        return self

    def __exit__(self, *_: object) -> None:
        self._budget.release(self._size, self._peer)

    def check_length(self) -> None:
        """Check Content-Length before anything is read. Raises BadEvent (400, 413)."""
        announced = single_header(self._headers, b"content-length")
        if announced and (not announced.isdigit() or len(announced) > 15):
            raise BadEvent(HTTPStatus.BAD_REQUEST, "Content-Length is not a number of bytes")
        if announced and int(announced) > self._limit:
            raise self._too_large()

    async def read(self) -> bytes:
        """Return the whole body. Raises BadEvent (413), TryLater (429), ClientDisconnected."""
        pieces: list[bytes] = []
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                raise ClientDisconnected
            piece = message.get("body", b"")
            if self._size + len(piece) > self._limit:
                raise self._too_large()
            self._budget.reserve(len(piece), self._peer, self._size)
            self._size += len(piece)
            pieces.append(piece)
            if not message.get("more_body", False):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _too_large(self) -> BadEvent:
        message = (
            f"the request is larger than {format_size(self._limit)}: send fewer events in it, or a link to the data"
        )
        return BadEvent(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)


def error_response(error: BadEvent) -> WebhookResponse:
    """Return the response for an error of a whole request."""
    headers: dict[str, str] = {}
    if isinstance(error, TryLater):
        headers["Retry-After"] = retry_after(error)
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return WebhookResponse(error.status, {"error": str(error)}, headers, [error])


def retry_after(error: TryLater) -> str:
    """Return the value of Retry-After: whole seconds (RFC 9110 §10.2.3), at least 1."""
    return str(max(1, math.ceil(error.retry_after)))


async def send_response(send: Send, response: WebhookResponse) -> None:
    """Send the response's head and body."""
    body = b"" if response.body is None else msgspec.json.encode(response.body)
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in response.headers.items()]
    headers.append((b"content-length", b"%d" % len(body)))
    if body:
        headers += [(b"content-type", JSON), (b"x-content-type-options", b"nosniff")]
    await send({"type": "http.response.start", "status": int(response.status), "headers": headers})
    await send({"type": "http.response.body", "body": body})
