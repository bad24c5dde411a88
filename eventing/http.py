"""The little of HTTP that the webhook needs over ASGI: a bounded body, one header, one answer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.types import Receive, Send

from clusters.base.sizes import format_size
from eventing.errors import BadEvent, TryLater
from eventing.rate import Room

Headers = Iterable[tuple[bytes, bytes]]
"""As ASGI has them: names in lower case."""
JSON: Final = b"application/json"


class SenderLeft(Exception):
    """The sender left before its request was complete: there is nobody to answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent back. `body` is made JSON, None is no body; `errors` are for our log."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    errors: Sequence[BadEvent] = ()


def only(headers: Headers, name: bytes) -> bytes:
    """The header's value, empty without it. Raises BadEvent (400) for two: each party would look at another one."""
    found = [value for key, value in headers if key == name]
    if len(found) > 1:
        raise BadEvent(HTTPStatus.BAD_REQUEST, f"the request has two headers {name.decode()}")
    return found[0] if found else b""


class Body:
    """Reads one request's body, of `peer`, into `room`, which it gives back at the end of the block."""

    def __init__(self, headers: Headers, receive: Receive, limit: int, room: Room, peer: str) -> None:
        self._headers = headers
        self._receive = receive
        self._limit = limit
        self._room = room
        self._peer = peer
        self._taken = 0

    def __enter__(self) -> Body:
        return self

    def __exit__(self, *_: object) -> None:
        self._room.give_back(self._taken, self._peer)

    def check_length(self) -> None:
        """Raise BadEvent (413, 400) by the announced length, before anything is read."""
        announced = only(self._headers, b"content-length")
        if announced and (not announced.isdigit() or len(announced) > 15):
            raise BadEvent(HTTPStatus.BAD_REQUEST, "Content-Length is no number")
        if announced and int(announced) > self._limit:
            raise self._too_large()

    async def read(self) -> bytes:
        """All of it. Raises BadEvent (413), TryLater (429), SenderLeft."""
        pieces: list[bytes] = []
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                raise SenderLeft
            piece = message.get("body", b"")
            if self._taken + len(piece) > self._limit:
                raise self._too_large()
            self._room.take(len(piece), self._peer, self._taken)
            self._taken += len(piece)
            pieces.append(piece)
            if not message.get("more_body", False):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _too_large(self) -> BadEvent:
        message = f"a request has at most {format_size(self._limit)}: send fewer events, or data by a link"
        return BadEvent(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)


def refusal(error: BadEvent) -> Answer:
    """What an error is told as."""
    headers: dict[str, str] = {}
    if isinstance(error, TryLater):
        headers["Retry-After"] = retry_after(error)
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return Answer(error.status, {"error": str(error)}, headers, [error])


def retry_after(error: TryLater) -> str:
    """Whole seconds (RFC 9110 §10.2.3), one at least."""
    return str(max(1, math.ceil(error.retry_after)))


async def send_answer(send: Send, answer: Answer) -> None:
    """Send it."""
    body = b"" if answer.body is None else msgspec.json.encode(answer.body)
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers.items()]
    headers.append((b"content-length", b"%d" % len(body)))
    if body:
        headers += [(b"content-type", JSON), (b"x-content-type-options", b"nosniff")]
    await send({"type": "http.response.start", "status": int(answer.status), "headers": headers})
    await send({"type": "http.response.body", "body": body})
