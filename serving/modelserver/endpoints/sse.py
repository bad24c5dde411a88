"""Streamed responses as server-sent events: `text/event-stream` (WHATWG HTML, 9.2).

The data of each event is one JSON message of a protocol. An error before the first event is a response with its status.
A later error is a final event `{"error": "…"}`, as in Triton's generate extension; the ASGI scope has its status for
metrics. A stream occupies a slot, and has the deadline of an inference. It ends when the client disconnects.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from functools import partial
from typing import Final

from starlette.types import Scope, Send

from clusters.net.server.connection import HttpConnection
from clusters.net.server.errors import error_body
from clusters.net.server.protocol import connection_of
from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import Cancellation, Engine
from serving.engines.base.errors import Cancelled
from serving.modelserver.base.errors import ClientLeft, InvalidRequest, ServingError, release_frames
from serving.modelserver.base.limits import Lease
from serving.modelserver.base.responses import BROKEN_KEY
from serving.modelserver.base.split import PRODUCED_KEY, TOKENS_KEY, TokenTimes
from serving.modelserver.codec.bounded_read import BufferedBody
from serving.modelserver.codec.content_router import EVENT_STREAM
from serving.modelserver.codec.protocol_v2 import PreparedRequest
from serving.modelserver.endpoints.infer import InferenceEndpoint
from serving.modelserver.execution.inference import BEGAN, INLINE_BODY
from serving.modelserver.execution.lifecycle import ServedModel
from serving.modelserver.execution.stream_queue import StreamQueue

HEAD: Final = [
    (b"content-type", EVENT_STREAM + b"; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # disables buffering in proxies
]
THREAD_BODY_SIZE: Final = INLINE_BODY + 1
"""A body size that always runs in a thread: a stream would block the event loop for its whole duration."""


class StreamingEndpoint(InferenceEndpoint):
    """An endpoint whose response is a stream of events."""

    streams = True

    async def respond(self, body: BufferedBody, lease: Lease, scope: Scope, send: Send) -> None:
        """Send the events. Raises ServingError for an error before the first one."""
        loop = asyncio.get_running_loop()
        parts: StreamQueue[bytes] = StreamQueue(loop)
        tokens: TokenTimes = scope.get(TOKENS_KEY) or TokenTimes(streamed=True)
        inferring = self._inference.run(
            partial(self._produce, body, parts, tokens),
            THREAD_BODY_SIZE,
            connection_of(scope, HttpConnection),
            began=scope.get(BEGAN),
            body=lease,
        )
        running = loop.create_task(inferring)

        def produced(_: object) -> None:
            scope[PRODUCED_KEY] = loop.time() - parts.blocked_seconds
            tokens.end(parts.blocked_seconds)
            parts.close()

        running.add_done_callback(produced)
        events = EventStreamWriter(send)
        try:
            try:
                async for part in parts:
                    await events.send(part)
                await running
            except ServingError as error:
                if not events.started or isinstance(error, ClientLeft):
                    raise
                release_frames(error)
                scope[BROKEN_KEY] = error.status
                await events.send(error_body(str(error)))
            await events.end()
        finally:
            parts.close()
            running.cancel()

    def _produce(
        self, body: BufferedBody, parts: StreamQueue[bytes], tokens: TokenTimes, model: ServedModel,
        cancellation: Cancellation | None,
    ) -> None:  # fmt: skip
        """Decode the request, and hand over each part of the response. Runs in a thread.

        Raises ServingError, EngineError.
        """
        codec = self._codec_of(model)
        request = codec.decode(body.content, body.json_length)
        # `closing` closes the stream at once; otherwise the garbage collector would do so later
        with closing(stream_outputs(model.engine, request, cancellation)) as stream:
            for outputs in stream:
                tokens.observe(time.monotonic())
                part = codec.encode(request, outputs)
                if part.json_length is not None:
                    raise InvalidRequest("a stream of events cannot have binary tensors: request JSON")
                parts.put(part.body)
                if cancellation is not None and cancellation.cancelled:
                    raise Cancelled("the stream was cancelled")


class EventStreamWriter:
    """Writes events to the client; `started` is true once the status is sent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def send(self, data: bytes) -> None:
        """Send an event with the single line `data`. Waits for a slow client."""
        if not self.started:
            self.started = True
            await self._send({"type": "http.response.start", "status": 200, "headers": list(HEAD)})
        await self._send({"type": "http.response.body", "body": b"data: %b\n\n" % data, "more_body": True})

    async def end(self) -> None:
        """End the stream, which may have no events."""
        if not self.started:
            await self._send({"type": "http.response.start", "status": 200, "headers": list(HEAD)})
        await self._send({"type": "http.response.body", "body": b""})


def stream_outputs(
    engine: Engine, request: PreparedRequest, cancellation: Cancellation | None
) -> Generator[Sequence[Tensor], None, None]:
    """Yield the parts of the response; one part if the engine does not stream. Raises EngineError at any part."""
    stream = getattr(engine, "stream", None)
    if stream is None:
        yield engine.infer(request.inputs, request.outputs, cancellation)
    else:
        yield from stream(request.inputs, request.outputs, cancellation)
