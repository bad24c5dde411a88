"""Pass a request of OpenAI's or Anthropic's API on to the engine, and its response back, byte for byte.

The server checks the model's name, and keeps slot, queue and deadline around the request as it does for an inference.
Nothing is sent to the engine before the request has a slot. A caller that disconnects ends the request in the engine at
once. Nothing is sent twice. An error after the first event of a stream is its last event; the ASGI scope has its status
for metrics.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from starlette.types import Receive, Scope, Send

from clusters.net.server.connection import HttpConnection
from clusters.net.server.errors import RECEIVED_KEY
from clusters.net.server.protocol import connection_of
from clusters.net.upstream import UpstreamConnection, UpstreamError
from serving.engines.base.errors import InputRefused
from serving.engines.base.trace_context import HEADER as TRACE_HEADER
from serving.engines.base.trace_context import TRACEPARENT
from serving.engines.upstream.adapters import ServedAdapter
from serving.engines.upstream.client import Address
from serving.engines.upstream.engine import UpstreamEngine
from serving.modelserver.base.errors import (
    ClientLeft,
    InvalidRequest,
    ModelFailed,
    ResourceNotFound,
    ServingError,
    release_frames,
)
from serving.modelserver.base.limits import BodyBudget, Lease
from serving.modelserver.base.responses import BROKEN_KEY, JSON, RECORDED_KEY, send_body
from serving.modelserver.base.split import MOST_BLOCKED, TOKENS_KEY, TokenTimes
from serving.modelserver.codec.bounded_read import read_body
from serving.modelserver.codec.messages import explain_decode_error
from serving.modelserver.execution.inference import BEGAN, Inference, RequestContext
from serving.modelserver.openai.body_values import check_values
from serving.modelserver.openai.errors import (
    InvalidParameter,
    ModelNotFound,
    anthropic_error,
    mend_error,
    openai_error,
)
from serving.modelserver.openai.exchange import Exchange, Waker
from serving.modelserver.openai.listing import model_names
from serving.modelserver.openai.metrics import LlmMetrics
from serving.modelserver.openai.paths import GENERATING, MESSAGES, PREFIX, SEVERAL_ANSWERS
from serving.modelserver.openai.tokens import StreamObserver, body_times, body_usage

T = TypeVar("T")

MAX_ANSWER: Final = 64 << 20  # bytes of a response that is not a stream
EVENTS: Final = b"text/event-stream"
_PASSED: Final = frozenset({b"content-type", b"cache-control", b"retry-after", b"x-request-id"})
_FORWARDED: Final = frozenset({b"x-request-id", b"traceparent", b"tracestate", b"anthropic-version", b"anthropic-beta"})
_LONGEST_HEADER: Final = 1024  # bytes of a value; a longer one is not passed on
_MAX_QUOTED: Final = 100  # characters of a model's name that a message repeats


class _Head(msgspec.Struct):
    """The members of a request that the server reads."""

    model: str | None = None
    stream: Any = False
    n: Any = 1


_HEAD: Final = msgspec.json.Decoder(_Head)
_WHOLE: Final = msgspec.json.Decoder(dict[str, Any])
_ENCODE: Final = msgspec.json.Encoder().encode


class OpenAiEndpoint:
    """The ASGI endpoint of all paths of `PATHS`, for the model `name`."""

    def __init__(self, name: str, inference: Inference, budget: BodyBudget, metrics: LlmMetrics) -> None:
        self._name = name
        self._inference = inference
        self._budget = budget
        self._metrics = metrics
        self._waker = Waker()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        path: str = scope["path"].removeprefix(PREFIX)
        try:
            await self._serve(path, scope, receive, send)
        except ServingError as error:
            release_frames(error)
            if not isinstance(error, ClientLeft):
                body = anthropic_error(error) if path.startswith(MESSAGES) else openai_error(error)
                await send_body(send, error.status, body, JSON, error.headers)

    async def _serve(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        model = self._inference.model()
        engine = model.engine
        if not isinstance(engine, UpstreamEngine) or path not in engine.program.paths:
            raise ResourceNotFound(f"model {self._name} does not have {path}: GET / lists the paths of this server")
        body = await read_body(scope, receive, self._budget, model.codec.limits.body)
        lease = Lease(partial(self._budget.give_back, body.lent), body.lent)
        try:
            check_values(body.content)
            head = _decode(_HEAD, body.content)
            with engine.adapters.using(self._adapter_name(head.model)) as adapter:
                content = self._prepare(engine, body.content, head.model, adapter)
                several = path in SEVERAL_ANSWERS and isinstance(head.n, int) and head.n > 1
                slots = head.n if several else 1  # each answer takes one; the engine refuses other values of n
                if slots > engine.slots:
                    most = f"the model computes {engine.slots} answers at once: send at most {engine.slots}"
                    raise InvalidParameter("n", f"n is {slots}, and {most}")
                if path in GENERATING:
                    scope[TOKENS_KEY] = TokenTimes(head.stream is True)
                client = connection_of(scope, HttpConnection)
                async with self._inference.occupy(client, scope.get(BEGAN), slots) as request:
                    await _Exchange(engine, path, request, client, scope, send, self._metrics, self._waker).run(content)
        finally:
            lease.release()

    def _adapter_name(self, asked: str | None) -> str:
        """Return the adapter that a request asks for, "" for none. Raises InvalidRequest."""
        if asked is None:
            raise InvalidRequest(f"the member model is missing: send {self._name!r}")
        return asked.removeprefix(f"{self._name}:") if asked.startswith(f"{self._name}:") else ""

    def _prepare(
        self, engine: UpstreamEngine, content: bytes, asked: str | None, adapter: ServedAdapter | None
    ) -> bytes:
        """Return the body for the engine. Raises InvalidRequest, ModelNotFound."""
        if asked != self._name and adapter is None:
            served = ", ".join(model_names(self._name, engine.adapters.names))
            raise ModelNotFound(f"the model {str(asked)[:_MAX_QUOTED]!r} is not served here: use {served}")
        whole = _decode(_WHOLE, content)
        try:
            changed = engine.program.change_body(whole, "" if adapter is None else adapter.name)
        except InputRefused as error:
            raise InvalidRequest(str(error)) from error
        if adapter is not None and adapter.model != asked:
            changed = {**(changed or whole), "model": adapter.model}
        return content if changed is None else _ENCODE(changed)


def _decode(decoder: msgspec.json.Decoder[T], content: bytes) -> T:
    """Decode a request. Raises InvalidRequest."""
    try:
        return decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"the body is not a valid request: {explain_decode_error(error)}") from error


class _Exchange(Exchange):
    """One request of OpenAI's or Anthropic's API."""

    def __init__(
        self, engine: UpstreamEngine, path: str, request: RequestContext, client: HttpConnection, scope: Scope,
        send: Send, metrics: LlmMetrics, waker: Waker,
    ) -> None:  # fmt: skip
        super().__init__(engine, request, client, waker)
        self._refusals = engine.program.refusals
        self._path = path
        self._scope = scope
        self._times: TokenTimes = scope.get(TOKENS_KEY) or TokenTimes(streamed=False)
        self._send = send
        self._metrics = metrics
        self._sent = 0.0  # when the request was sent to the engine
        self._observer = StreamObserver()
        self._blocked = 0.0  # s in which the caller did not read

    async def _exchange(self, connection: UpstreamConnection, address: Address, body: bytes) -> None:
        connection.send(_request_head(address, self._path, self._scope, len(body)), head_only=False)
        connection.write(body)
        self._sent = time.monotonic()
        status, headers = await connection.response()
        passed = [(name, value) for name, value in headers if name in _PASSED]
        if any(name == b"content-type" and value.startswith(EVENTS) for name, value in passed):
            await self._pass_stream(connection, status, passed)
        else:
            await self._pass_body(connection, status, passed)

    async def _pass_body(self, connection: UpstreamConnection, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Read the whole response, so that one that breaks off is an error with its own status."""
        pieces, size = [], 0
        while data := await connection.read():
            pieces.append(data)
            size += len(data)
            self._check()
            if size > MAX_ANSWER:
                raise ModelFailed(f"the answer of the engine is larger than {MAX_ANSWER >> 20} MiB")
        body = b"".join(pieces)
        if status >= InvalidRequest.status:
            anthropic = self._path.startswith(MESSAGES)
            status, body = mend_error(status, body, self._refusals, anthropic=anthropic)
            headers = [(b"content-type", JSON), *(one for one in headers if one[0] != b"content-type")]
        usage = body_usage(body) if status < InvalidRequest.status else None
        if usage is not None:
            self._engine.tokens.add(usage)
        self._times.streamed = False
        if TOKENS_KEY in self._scope and status < InvalidRequest.status:
            self._note_times(body)
        headers.append((b"content-length", b"%d" % len(body)))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    def _note_times(self, body: bytes) -> None:
        """Note the times that the engine reports. The wait for a slot is part of the time to the first token."""
        told = body_times(body)
        if told.first is not None:
            self._times.first = min(self._sent + told.first, time.monotonic())
        self._times.between = told.between

    async def _pass_stream(
        self, connection: UpstreamConnection, status: int, headers: list[tuple[bytes, bytes]]
    ) -> None:
        """Pass events on as they come. An error is the last event."""
        send, observer = self._send, self._observer
        self._times.streamed = True
        headers.append((b"x-accel-buffering", b"no"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        try:
            while data := await connection.read():
                await self._send_piece(data)
                if RECORDED_KEY not in self._scope:
                    await connection.forward(self._write_now)
            self._check()
        except (UpstreamError, ServingError) as error:
            failure = self._stopped or ModelFailed(f"the engine broke off the answer: {error}")
            self._scope[BROKEN_KEY] = failure.status
            if not isinstance(failure, ClientLeft):
                await send({"type": "http.response.body", "body": self._last_event(failure), "more_body": True})
        if observer.failed:
            self._scope[BROKEN_KEY] = ModelFailed.status
        self._count()
        await send({"type": "http.response.body", "body": b""})

    def _write_now(self, data: bytes) -> bool:
        written = self._client.write_now(data)
        if written:
            self._observe(data)
        return written

    async def _send_piece(self, data: bytes) -> None:
        self._observe(data)
        began, waits = self._loop.time(), self._client.flow.write_paused
        self._sending = True
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
        self._sending = False
        self._blocked += self._loop.time() - began if waits else 0.0

    def _observe(self, data: bytes) -> None:
        self._observer.feed(data, time.monotonic())  # uvloop's own time is in milliseconds
        self._times.first = self._observer.first

    def _last_event(self, error: ServingError) -> bytes:
        if self._path.startswith(MESSAGES):
            return b"\n\nevent: error\ndata: %b\n\n" % anthropic_error(error)
        return b"\n\ndata: %b\n\n" % openai_error(error)

    def _count(self) -> None:
        observer = self._observer
        usage = observer.usage()
        self._engine.tokens.add(usage)
        if observer.first is None:
            return
        self._metrics.first_token(max(0.0, observer.first - self._scope.get(RECEIVED_KEY, observer.first)))
        between = observer.seconds_per_token(usage)
        if between is not None:
            self._metrics.between_tokens(between)
            if self._blocked <= MOST_BLOCKED * (observer.last - observer.first):
                self._times.between = between


def _request_head(address: Address, path: str, scope: Scope, length: int) -> bytes:
    """Return the head of the request to the engine.

    The caller's headers in `_FORWARDED` are passed on, each once. Engines refuse long and repeated ones without a body.
    In a traced request, `traceparent` is that of this server's span.
    """
    sent = {name: value for name, value in scope["headers"] if name in _FORWARDED and len(value) <= _LONGEST_HEADER}
    if parent := TRACEPARENT.get():
        sent[TRACE_HEADER] = parent.encode()
    passed = b"".join(b"%b: %b\r\n" % header for header in sent.items())
    name, key = address.key_header
    return (
        b"POST %b HTTP/1.1\r\nHost: engine\r\n%b: %b\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\nConnection: close\r\n%b\r\n"
        % (path.encode(), name.encode(), key.encode(), length, passed)
    )
