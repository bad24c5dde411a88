"""Receive the one message of a call, and bound the memory of messages and of responses that clients have not read.

gRPC buffers a message until it is complete, and reports neither its size nor its progress meanwhile. So a call whose
message does not arrive at once borrows memory for a large message. Few calls may do so at the same time, and each has a
time limit. Slow clients therefore hold little memory, for a limited time, and none that small messages need.
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

PROMPT: Final = 0.5  # s; a message that is not large is complete after this time, or twice this time
COMPRESSIONS: Final = {
    b"\x1f\x8b": (GZIP, grpc.Compression.Gzip),
    **dict.fromkeys((b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"), (DEFLATE, grpc.Compression.Deflate)),
}
"""The first two bytes of compressed messages: gzip (RFC 1952, 2.3.1), and zlib with gRPC's window (RFC 1950, 2.2).

No uncompressed message of the protocol starts so: the first byte would be a key of wire type 7, or of field 15, and no
message has either."""
MAX_RECEIVE_SECONDS: Final = 60.0  # s; the largest message in this time is 1 MB/s
LOAN: Final = 16 * MEBIBYTE  # for a message that is not complete; one page of OCR is 13 MB
SHARE: Final = 2  # slow messages may take one half of the budget


class Context(Protocol):
    """The part of `grpc.aio.ServicerContext` that receiving and responding uses."""

    async def read(self) -> Any:
        """Return the next message, or EOF."""
        ...

    def time_remaining(self) -> float | None:
        """Return the seconds until the client's deadline; None without one."""
        ...

    def set_compression(self, compression: Any) -> None:
        """Compress the response."""
        ...

    async def send_initial_metadata(self, metadata: tuple[tuple[str, str], ...]) -> None:
        """Send the headers of the response."""
        ...

    def set_trailing_metadata(self, metadata: tuple[tuple[str, str], ...]) -> None:
        """Set the metadata that is sent with the status."""
        ...

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call `callback` with the context when the call has ended."""
        ...

    async def abort(self, code: Any, details: str, trailing_metadata: tuple[tuple[str, str], ...]) -> None:
        """End the call with an error; always raises an exception, which ends the handler."""
        ...


class MessageReceiver:
    """Receives messages within `budget`; `lease` returns the memory of each."""

    def __init__(
        self, budget: BodyBudget, limits: ServerLimits, loop: asyncio.AbstractEventLoop, prompt: float = PROMPT,
        longest: float = MAX_RECEIVE_SECONDS,
    ) -> None:  # fmt: skip
        self._budget = budget
        self._largest = limits.body
        self._loan = min(LOAN, limits.body)
        self._most_slow = max(1, limits.body_memory // SHARE // self._loan)
        self._loop = loop
        self._prompt = prompt
        self._longest = longest
        self._started: dict[asyncio.Task[Any], float] = {}  # in order of the times
        self._slow: set[asyncio.Task[Any]] = set()  # each of them has borrowed `_loan` bytes
        self._refused: dict[asyncio.Task[Any], ServingError] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def receive(self, context: Context) -> bytes:
        """Return the message of a call, decompressed.

        Raises InvalidRequest, ClientLeft, Overloaded, RequestTimeout, ContentTooLarge.
        """
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("only a task can receive a message")
        self._started[task] = self._loop.time()
        if self._timer is None:  # one timer for all: nearly every message is complete before it fires
            self._timer = self._loop.call_later(self._prompt, self._check_slow)
        try:
            message = await context.read()
        except asyncio.CancelledError:
            if task in self._refused:
                task.uncancel()
                raise self._refused[task] from None
            raise
        finally:
            del self._started[task]
            self._refused.pop(task, None)
            if task in self._slow:
                self._slow.remove(task)
                self._budget.give_back(self._loan)
        if message is grpc.aio.EOF:
            raise ClientLeft
        if compressed := COMPRESSIONS.get(bytes(message[:2])):
            coding, compression = compressed
            message = await self._decompress(message, coding)
            context.set_compression(compression)  # a client that compresses can read compressed responses
            await context.send_initial_metadata(())  # otherwise `grpc.aio` forgets the compression
        elif len(message) > SMALL_BODY:
            self._budget.borrow(len(message))
        return bytes(message)

    async def _decompress(self, message: bytes, coding: bytes) -> bytes:
        """Raises InvalidRequest, Overloaded, ContentTooLarge."""
        self._budget.borrow(len(message))
        try:
            content, lent = await decompress(message, self._budget, self._largest, coding)
        finally:
            self._budget.give_back(len(message))
        if len(content) <= SMALL_BODY:
            self._budget.give_back(lent)
        return content

    def lease(self, message: bytes) -> Lease:
        """Return the memory that a received message takes from the budget."""
        size = len(message) if len(message) > SMALL_BODY else 0
        return Lease(partial(self._budget.give_back, size), size)

    def _check_slow(self) -> None:
        """Borrow memory for messages that are slow, and refuse those that exceed their time."""
        now = self._loop.time()
        for task, started in self._started.items():
            if task in self._slow and now - started >= self._longest:
                self._refuse(task, RequestTimeout(f"the message was not complete within {self._longest:g} s"))
            elif task not in self._slow and now - started >= self._prompt:
                try:
                    if len(self._slow) >= self._most_slow:
                        raise Overloaded("too many slow messages at once: try again")
                    self._budget.borrow(self._loan)
                except Overloaded as error:
                    self._refuse(task, error)
                else:
                    self._slow.add(task)
        self._timer = self._loop.call_later(self._prompt, self._check_slow) if self._started else None

    def _refuse(self, task: asyncio.Task[Any], error: ServingError) -> None:
        if task not in self._refused:
            self._refused[task] = error
            task.cancel()


class ResponseBackpressure:
    """Refuses inferences while clients have not read about `limit` bytes of responses, which gRPC buffers.

    A client that does not read at all fails a ping (`server.py`), and its connection is closed.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = 0

    def check(self) -> None:
        """Raise Overloaded when the limit is exceeded."""
        if self._bytes > self._limit:
            raise Overloaded("too much response data is unread: try again")

    def add(self, context: Context, response: bytes) -> None:
        """Count a response until its call ends. Small responses are not counted: the call itself takes more memory."""
        size = len(response)
        if size <= SMALL_BODY:
            return
        self._bytes += size

        def remove(_: Any) -> None:
            self._bytes -= size

        context.add_done_callback(remove)
