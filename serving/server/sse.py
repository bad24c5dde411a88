"""Answers that come bit by bit, as server-sent events: `text/event-stream` (WHATWG HTML, 9.2).

Each part of the answer is an event whose data is one JSON message of a protocol. What goes wrong before the first part
is answered with its status; what goes wrong later, when the status has left, is an event `{"error": "…"}`, the last one
(as Triton's generate extension has it). A stream has the slot and the deadline of an inference; it ends when the caller
leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import closing
from functools import partial
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from serving.engines.base import Cancellation, Engine
from serving.engines.datatypes import Tensor
from serving.engines.errors import Cancelled
from serving.server.answers import error_body, send_error
from serving.server.body import Body, read_body
from serving.server.connection import Connection, connection_of
from serving.server.errors import ClientLeft, ServingError
from serving.server.handover import Handover
from serving.server.infer import DialectOf
from serving.server.inference import INLINE_BODY, Inference
from serving.server.lifecycle import ServedModel
from serving.server.limits import BodyBudget
from serving.server.protocol_v2 import Call

EVENT_STREAM: Final = b"text/event-stream"
HEAD: Final = [
    (b"content-type", EVENT_STREAM + b"; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # proxies that collect answers pass this one on at once
]
IN_A_THREAD: Final = INLINE_BODY + 1
"""As large as bodies that the event loop does not take: a stream would keep it for as long as it lasts."""
TAKEN_WITHIN: Final = (
    10.0  # s after the model's end; who has not read the rest by then is cut off, so that a server ends
)


class Stream:
    """ASGI endpoint of an inference whose answer is a stream of events.

    What the model has made is to be read within `taken_within` seconds of its end.
    """

    def __init__(
        self, inference: Inference, budget: BodyBudget, dialect_of: DialectOf, taken_within: float = TAKEN_WITHIN
    ) -> None:
        self._inference = inference
        self._budget = budget
        self._dialect_of = dialect_of
        self._taken_within = taken_within

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            model = self._inference.model()
            body = await read_body(scope, receive, self._budget, model.codec.limits.body)
            try:
                await self._answer(body, connection_of(scope), Events(send))
            finally:
                self._budget.give_back(body.lent)
        except ClientLeft:
            return
        except ServingError as error:
            await send_error(send, error)

    async def _answer(self, body: Body, connection: Connection, events: Events) -> None:
        """Raises ServingError, of what goes wrong before the first event."""
        loop = asyncio.get_running_loop()
        parts: Handover[bytes] = Handover(loop)
        timers: list[asyncio.TimerHandle] = []

        def ended(_: object) -> None:
            parts.end()
            timers.append(loop.call_later(self._taken_within, connection.transport.abort))

        running = loop.create_task(self._inference.run(partial(self._produce, body, parts), IN_A_THREAD, connection))
        running.add_done_callback(ended)
        try:
            await _deliver(running, parts, events)
        finally:
            running.remove_done_callback(ended)
            parts.end()
            running.cancel()
            for timer in timers:
                timer.cancel()

    def _produce(
        self, body: Body, parts: Handover[bytes], model: ServedModel, cancellation: Cancellation | None
    ) -> None:
        """Decode, and hand over each part as it comes. Runs in a thread. Raises ServingError, EngineError."""
        dialect = self._dialect_of(model)
        call = dialect.decode(body.content, body.json_length)
        with closing(answers_of(model.engine, call, cancellation)) as stream:  # at once, not when memory is collected
            for answers in stream:
                parts.put(dialect.encode(call, answers).body)
                if cancellation is not None and cancellation.cancelled:
                    raise Cancelled("the stream was cancelled")


async def _deliver(running: asyncio.Task[None], parts: Handover[bytes], events: Events) -> None:
    try:
        async for part in parts:
            await events.send(part)
        await running
    except ServingError as error:
        if not events.begun or isinstance(error, ClientLeft):
            raise
        await events.send(error_body(str(error)))
    await events.end()


class Streamable:
    """ASGI endpoint that answers by `stream` a caller whose `Accept` has a stream of events, by `plain` all others."""

    def __init__(self, plain: ASGIApp, stream: ASGIApp) -> None:
        self._plain = plain
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        wanted = any(name == b"accept" and EVENT_STREAM in value.lower() for name, value in scope["headers"])
        await (self._stream if wanted else self._plain)(scope, receive, send)


class Events:
    """The answer; `begun` says whether its status has left."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    async def send(self, data: bytes) -> None:
        """One more event; `data` is one line. Waits for a caller that reads slowly."""
        if not self.begun:
            self.begun = True
            await self._send({"type": "http.response.start", "status": 200, "headers": list(HEAD)})
        await self._send({"type": "http.response.body", "body": b"data: %b\n\n" % data, "more_body": True})

    async def end(self) -> None:
        """There are no more; a stream may have none."""
        if not self.begun:
            await self._send({"type": "http.response.start", "status": 200, "headers": list(HEAD)})
        await self._send({"type": "http.response.body", "body": b""})


def answers_of(
    engine: Engine, call: Call, cancellation: Cancellation | None
) -> Generator[Sequence[Tensor], None, None]:
    """The parts of the answer; its whole from an engine that does not stream. Raises EngineError at any part."""
    stream = getattr(engine, "stream", None)
    if stream is None:
        yield engine.infer(call.inputs, call.outputs, cancellation)
    else:
        yield from stream(call.inputs, call.outputs, cancellation)
