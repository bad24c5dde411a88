"""One request of a caller with its response, over ASGI."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.types import Message, Receive, Scope, Send

from clusters.base.sizes import format_size
from clusters.net.language_models import LARGEST_BODY, ModelNotSelected, error_body
from eventing.errors import TryLater
from eventing.limits import ByteBudget
from serving.router.errors import CallerLeft, RouterError

_JSON: Final = (b"content-type", b"application/json")
_DIGITS: Final = 15  # of a Content-Length, so that it is a 64-bit number


class Exchange:
    """A request and its response. `budget` bounds the bodies of all requests; call `release` at the end."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, budget: ByteBudget) -> None:
        self.scope = scope
        self.status: int | None = None
        self._receive = receive
        self._send = send
        self._budget = budget
        self._peer = str((scope.get("client") or ("",))[0])
        self._held = 0

    def header(self, name: bytes) -> bytes:
        """Return the value of a header, empty without one."""
        return next((value for key, value in self.scope["headers"] if key == name), b"")

    async def body(self) -> bytearray:
        """Return the whole body. Raises RouterError (413, 415, 429), CallerLeft."""
        encoding = self.header(b"content-encoding").lower()
        if encoding not in (b"", b"identity"):
            raise RouterError(415, "a compressed body is not supported here: send it without Content-Encoding")
        length = self.header(b"content-length")
        if len(length) > _DIGITS or (length.isdigit() and int(length) > LARGEST_BODY):
            raise _too_large()
        body = bytearray()
        more = True
        while more:
            message = await self._receive()
            if message["type"] != "http.request":
                raise CallerLeft("the caller disconnected")
            self._hold(len(message.get("body", b"")))
            body += message.get("body", b"")
            more = message.get("more_body", False)
        return body

    def _hold(self, size: int) -> None:
        if self._held + size > LARGEST_BODY:
            raise _too_large()
        try:
            self._budget.reserve(size, self._peer, self._held)
        except TryLater as error:
            raise RouterError(429, str(error), 1) from error
        self._held += size

    def release(self) -> None:
        """Return the bytes of the body to the budget. May be called again."""
        self._budget.release(self._held, self._peer)
        self._held = 0

    async def start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Send the head of a response."""
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, piece: bytes, *, more: bool = True) -> None:
        """Send a piece of a response once the caller has read the former ones."""
        message: Message = {"type": "http.response.body", "body": piece, "more_body": more}
        await self._send(message)

    async def answer(self, status: int, value: Any, *headers: tuple[bytes, bytes]) -> None:
        """Send a response of JSON."""
        body = msgspec.json.encode(value)
        await self.start(status, [_JSON, (b"content-length", b"%d" % len(body)), *headers])
        await self.write(body, more=False)

    async def refuse(self, error: RouterError | ModelNotSelected) -> None:
        """Send an error response in OpenAI's form."""
        if isinstance(error, ModelNotSelected):
            body = error_body(error.status, str(error), param=error.param, code=error.code)
            await self.answer(error.status, body)
        else:
            retry = [] if error.retry_after is None else [(b"retry-after", b"%d" % error.retry_after)]
            await self.answer(error.status, error_body(error.status, str(error)), *retry)


def _too_large() -> RouterError:
    return RouterError(413, f"the request body is larger than the limit of {format_size(LARGEST_BODY)}")
