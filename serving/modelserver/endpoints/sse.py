"""Answers that come bit by bit, as server-sent events: `text/event-stream` (WHATWG HTML, 9.2).

Each part of the answer is an event whose data is one JSON message of a protocol. What goes wrong before the first part
is answered with its status; what goes wrong later, when the status has left, is an event `{"error": "…"}`, the last one
(as Triton's generate extension has it), and the scope tells those who count its status. A stream has the slot and the
deadline of an inference; it ends when the caller leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import closing
from functools import partial
from typing import Final

from starlette.types import Scope, Send

from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import Cancellation, Engine
from serving.engines.base.errors import Cancelled
from serving.modelserver.base.errors import BadRequest, ClientLeft, ServingError, release_frames
from serving.modelserver.base.limits import Lease
from serving.modelserver.base.responses import error_body
from serving.modelserver.base.split import PRODUCED_KEY
from serving.modelserver.codec.bounded_read import RequestBody
from serving.modelserver.codec.content_router import EVENT_STREAM
from serving.modelserver.codec.protocol_v2 import PreparedRequest
from serving.modelserver.connections.connection import BROKEN_KEY, connection_of
from serving.modelserver.endpoints.infer import InferenceEndpoint
from serving.modelserver.execution.handover import Handover
from serving.modelserver.execution.inference import BEGAN, INLINE_BODY
from serving.modelserver.execution.lifecycle import ServedModel

HEAD: Final = [
    (b"content-type", EVENT_STREAM + b"; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # proxies that collect answers pass this one on at once
]
IN_A_THREAD: Final = INLINE_BODY + 1
"""As large as bodies that the event loop does not take: a stream would keep it for as long as it lasts."""


class StreamingEndpoint(InferenceEndpoint):
    """ASGI endpoint of an inference whose answer is a stream of events."""

    async def answer(self, body: RequestBody, held: Lease, scope: Scope, send: Send) -> None:
        """Send the events. Raises ServingError, of what goes wrong before the first one."""
        loop = asyncio.get_running_loop()
        parts: Handover[bytes] = Handover(loop)
        inferring = self._inference.run(
            partial(self._produce, body, parts), IN_A_THREAD, connection_of(scope), began=scope.get(BEGAN), body=held
        )
        running = loop.create_task(inferring)

        def produced(_: object) -> None:
            scope[PRODUCED_KEY] = loop.time() - parts.waited
            parts.end()

        running.add_done_callback(produced)
        try:
            await _deliver(running, parts, EventStreamWriter(send), scope)
        finally:
            parts.end()
            running.cancel()

    def _produce(
        self, body: RequestBody, parts: Handover[bytes], model: ServedModel, cancellation: Cancellation | None
    ) -> None:
        """Decode, and hand over each part as it comes. Runs in a thread. Raises ServingError, EngineError."""
        dialect = self._dialect_of(model)
        call = dialect.decode(body.content, body.json_length)
        with closing(
            stream_outputs(model.engine, call, cancellation)
        ) as stream:  # at once, not when memory is collected
            for answers in stream:
                reply = dialect.encode(call, answers)
                if reply.json_length is not None:
                    raise BadRequest("a stream of events has no binary tensors: ask for JSON")
                parts.put(reply.body)
                if cancellation is not None and cancellation.cancelled:
                    raise Cancelled("the stream was cancelled")


async def _deliver(
    running: asyncio.Task[None], parts: Handover[bytes], events: EventStreamWriter, scope: Scope
) -> None:
    try:
        async for part in parts:
            await events.send(part)
        await running
    except ServingError as error:
        if not events.begun or isinstance(error, ClientLeft):
            raise
        release_frames(error)
        scope[BROKEN_KEY] = error.status
        await events.send(error_body(str(error)))
    await events.end()


class EventStreamWriter:
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


def stream_outputs(
    engine: Engine, call: PreparedRequest, cancellation: Cancellation | None
) -> Generator[Sequence[Tensor], None, None]:
    """The parts of the answer; its whole from an engine that does not stream. Raises EngineError at any part."""
    stream = getattr(engine, "stream", None)
    if stream is None:
        yield engine.infer(call.inputs, call.outputs, cancellation)
    else:
        yield from stream(call.inputs, call.outputs, cancellation)
