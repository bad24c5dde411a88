"""Receiving the one message of a call.

gRPC buffers a message until it is whole and says nothing of it meanwhile, neither its size nor its pace. So a call
whose message does not come at once borrows memory for a large one, few calls may do so, and they have to be done in
time: callers that drip hold neither much memory nor that for long, and none that others need for small messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from serving.modelserver.base.errors import ClientLeft, Overloaded, RequestTimeout, ServingError
from serving.modelserver.base.limits import MEBIBYTE, SMALL_BODY, BodyBudget, Lease, ServerLimits
from serving.modelserver.codec.decompression import DEFLATE, GZIP, decompress
from serving.modelserver.grpc.library import grpc

PROMPT: Final = 0.5  # s; by then, or once more so long, a message is here that is not large
COMPRESSIONS: Final = {
    b"\x1f\x8b": (GZIP, grpc.Compression.Gzip),
    **dict.fromkeys((b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"), (DEFLATE, grpc.Compression.Deflate)),
}
"""The first two bytes of compressed messages: gzip (RFC 1952, 2.3.1), and zlib with gRPC's window (RFC 1950, 2.2).

No message of the protocol begins so: the first byte would be a key of wire type 7, or of field 15, which none has."""
LONGEST: Final = 60.0  # s; the largest message in this time is 1 MB/s
LOAN: Final = 16 * MEBIBYTE  # for a message that is not here yet; one page of OCR is 13 MB
SHARE: Final = 2  # the part of the budget that slow messages may have is one half


class Context(Protocol):
    """What is used of `grpc.aio.ServicerContext`."""

    async def read(self) -> Any:
        """The next message, or EOF."""
        ...

    def time_remaining(self) -> float | None:
        """Seconds until the caller's deadline; None without one."""
        ...

    def set_compression(self, compression: Any) -> None:
        """Compress the answer."""
        ...

    async def send_initial_metadata(self, metadata: tuple[tuple[str, str], ...]) -> None:
        """Send the headers of the answer."""
        ...

    def set_trailing_metadata(self, metadata: tuple[tuple[str, str], ...]) -> None:
        """Send it with the status."""
        ...

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call it with the context when the call has ended."""
        ...

    async def abort(self, code: Any, details: str, trailing_metadata: tuple[tuple[str, str], ...]) -> None:
        """End the call with an error; raises what ends the handler."""
        ...


class Messages:
    """Receives messages within `budget`; the memory of each is `held`."""

    def __init__(
        self, budget: BodyBudget, limits: ServerLimits, loop: asyncio.AbstractEventLoop, prompt: float = PROMPT,
        longest: float = LONGEST,
    ) -> None:  # fmt: skip
        self._budget = budget
        self._largest = limits.body
        self._loan = min(LOAN, limits.body)
        self._most_slow = max(1, limits.body_memory // SHARE // self._loan)
        self._loop = loop
        self._prompt = prompt
        self._longest = longest
        self._begun: dict[asyncio.Task[Any], float] = {}  # in this order
        self._lent: set[asyncio.Task[Any]] = set()
        self._refused: dict[asyncio.Task[Any], ServingError] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def receive(self, context: Context) -> bytes:
        """Return the message of a call, inflated.

        Raises BadRequest, ClientLeft, Overloaded, RequestTimeout, TooLarge.
        """
        task = _task()
        self._begun[task] = self._loop.time()
        if self._timer is None:  # one for all: nearly every message is here before it fires
            self._timer = self._loop.call_later(self._prompt, self._look)
        try:
            message = await context.read()
        except asyncio.CancelledError:
            if task in self._refused:
                task.uncancel()
                raise self._refused[task] from None
            raise
        finally:
            self._end(task)
        if message is grpc.aio.EOF:
            raise ClientLeft
        if compressed := COMPRESSIONS.get(bytes(message[:2])):
            coding, compression = compressed
            message = await self._inflated(message, coding)
            context.set_compression(compression)  # a caller that compresses reads compressed answers
            await context.send_initial_metadata(())  # else `grpc.aio` forgets the compression
        elif len(message) > SMALL_BODY:
            self._budget.borrow(len(message))
        return bytes(message)

    async def _inflated(self, message: bytes, coding: bytes) -> bytes:
        """Raises BadRequest, Overloaded, TooLarge."""
        self._budget.borrow(len(message))
        try:
            content, lent = await decompress(message, self._budget, self._largest, coding)
        finally:
            self._budget.give_back(len(message))
        if len(content) <= SMALL_BODY:
            self._budget.give_back(lent)
        return content

    def held(self, message: bytes) -> Lease:
        """Its memory."""
        size = len(message) if len(message) > SMALL_BODY else 0
        return Lease(partial(self._budget.give_back, size), size)

    def _end(self, task: asyncio.Task[Any]) -> None:
        del self._begun[task]
        self._refused.pop(task, None)
        if task in self._lent:
            self._lent.remove(task)
            self._budget.give_back(self._loan)

    def _look(self) -> None:
        """At what is not here yet."""
        now = self._loop.time()
        for task, begun in self._begun.items():
            if task in self._lent and now - begun >= self._longest:
                self._refuse(task, RequestTimeout(f"the message was not complete within {self._longest:g} s"))
            elif task not in self._lent and now - begun >= self._prompt:
                self._lend(task)
        self._timer = self._loop.call_later(self._prompt, self._look) if self._begun else None

    def _lend(self, task: asyncio.Task[Any]) -> None:
        try:
            if len(self._lent) >= self._most_slow:
                raise Overloaded("too many slow messages at once: try again")
            self._budget.borrow(self._loan)
        except Overloaded as error:
            self._refuse(task, error)
        else:
            self._lent.add(task)

    def _refuse(self, task: asyncio.Task[Any], error: ServingError) -> None:
        if task not in self._refused:
            self._refused[task] = error
            task.cancel()


def _task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a message is received by a task")
    return task
