"""OpenTelemetry tracing: a span for each inference request, with child spans for its body, the queue and the inference.

A request that another process computes (an engine of language models, Ray Serve) has a span `upstream` in place of
`inference`; that process gets its `traceparent`, so its own spans are children of it.

Imported only when a collector is configured, because the import takes 0.25 s. The SDK reads its own variables
(endpoint, headers, sampler, resource). A thread of the SDK exports spans by OTLP over HTTP, and drops those that do not
fit into its queue, so no request waits for the collector. The three spans of a request cost 0.1 ms; a request that is
not sampled (`OTEL_TRACES_SAMPLER`) costs a twentieth of that.
"""

from __future__ import annotations

import time
from asyncio import AbstractEventLoop
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from opentelemetry import context
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clusters.net.otlp.export import make_resource
from clusters.net.server.errors import RECEIVED_KEY, REFUSED_KEY
from serving.engines.base.engine import Cancellation
from serving.engines.base.trace_context import HEADER, TRACEPARENT
from serving.modelserver.base.limits import NO_LEASE, Lease
from serving.modelserver.base.responses import BROKEN_KEY
from serving.modelserver.codec.protocol_v2 import PreparedRequest
from serving.modelserver.execution.inference import Inference, ModelJob, Prepare, RequestClient, RequestContext, Respond
from serving.modelserver.execution.lifecycle import ModelLifecycle, ServedModel
from serving.modelserver.execution.slot_queue import SlotQueue
from serving.modelserver.execution.workers import Workers
from serving.modelserver.observe.middleware import (
    APPLICATION,
    MLFLOW,
    OPENAI,
    OTHER,
    PARENT_KEY,
    RERANK_V2,
    TRACE_KEY,
    V1,
    protocol_of,
)
from serving.modelserver.openai.paths import PATHS, PREFIX

if TYPE_CHECKING:
    from contextlib import _AsyncGeneratorContextManager

    from serving.modelserver.execution.batcher import Batcher

T = TypeVar("T")

BATCH_SIZE: Final = "knodel.batch.size"
"""Attribute of an inference: the number of requests that share it."""
VERBS: Final = frozenset({"infer", "generate", "generate_stream"})
_CONTEXT: Final = TraceContextTextMapPropagator()
CONTEXT_HEADERS: Final = (HEADER, b"tracestate")
"""Headers of a trace's context (W3C Trace Context)."""
_NANOSECONDS: Final = 1_000_000_000
_FAILED: Final = 500  # lowest HTTP status of a server error (OpenTelemetry's conventions for HTTP)


class Tracing:
    """Creates the spans of one server and passes them to `processor`."""

    def __init__(self, processor: SpanProcessor) -> None:
        self._processor = processor
        self._tracer: Tracer | None = None  # before the model is known, no request is routed here
        self._sampler: Sampler | None = None
        self._ids = _ChosenIds()

    def assign(self, model: str, revision: str) -> None:
        """Label spans with this model from now on. Resource attributes from the environment take precedence."""
        resource = make_resource(model, revision)
        provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        provider.add_span_processor(self._processor)
        self._tracer, self._sampler = provider.get_tracer("knodel"), provider.sampler

    def begins_trace(self) -> bool:
        """Return whether the sampler begins a trace for a request without one.

        If it does, the next span has the id for which it decided. If it does not, no span is made: one that records
        nothing costs several times as much.
        """
        if self._sampler is None:
            return False
        trace = self._ids.generate_trace_id()
        if self._sampler.should_sample(None, trace, "").decision is not Decision.RECORD_AND_SAMPLE:
            return False
        self._ids.chosen = trace
        return True

    @contextmanager
    def request_span(self, name: str, headers: Mapping[str, str], attributes: Mapping[str, Any]) -> Iterator[Span]:
        """Create the span of a request whose trace context is in `headers`, and make it the current span."""
        if self._tracer is None:
            yield get_current_span(context.Context())  # records nothing
            return
        parent = _CONTEXT.extract(headers)
        with self._tracer.start_as_current_span(
            name, parent, SpanKind.SERVER, attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            yield span

    def current_id(self) -> str:
        """Return the id of the current trace, "" without one."""
        return trace_id(get_current_span())

    def current_parent(self) -> str:
        """Return the `traceparent` of the current span, "" without one."""
        return parent_header(get_current_span())

    def record_received(self, span: Span, began: int, received: int) -> None:
        """Add the child span of a request until its body is complete; times in nanoseconds since 1970."""
        if self._tracer is not None and span.is_recording():
            self._tracer.start_span("receive", set_span_in_context(span), start_time=began).end(received)

    def trace_job(self, job: ModelJob[T]) -> ModelJob[T]:
        """Return `job` with a span for the time until it starts and a span for its run.

        Outside of a recording request span it returns `job` unchanged.
        """
        parent, tracer, enqueued = context.get_current(), self._tracer, time.time_ns()
        if tracer is None or not get_current_span(parent).is_recording():
            return job

        def run(model: ServedModel, cancellation: Cancellation | None) -> T:
            tracer.start_span("queue", parent, start_time=enqueued).end()
            with (
                tracer.start_as_current_span("inference", parent, record_exception=False) as span,
                _passed_on(parent_header(span)),
            ):
                return job(model, cancellation)

        return run

    @asynccontextmanager
    async def trace_upstream(self, slots: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
        """Hold `slots` for a request that another process computes, with a span until then and one from then on."""
        parent, tracer, enqueued = context.get_current(), self._tracer, time.time_ns()
        request = get_current_span(parent)
        if tracer is None or not request.is_recording():
            header = parent_header(request) or (self._ids.unsampled() if tracer is not None else "")
            async with slots as held:
                with _passed_on(header):
                    yield held
            return
        async with slots as held:
            tracer.start_span("queue", parent, start_time=enqueued).end()
            with (
                tracer.start_as_current_span("upstream", parent, SpanKind.CLIENT, record_exception=False) as span,
                _passed_on(parent_header(span)),
            ):
                yield held

    @contextmanager
    def trace_batched(self, prepare: Prepare[T]) -> Iterator[tuple[Prepare[T], Callable[[int], None] | None]]:
        """Yield `prepare` for a batched inference, and a function to call when its batch starts with so many requests.

        The spans are `queue` until `prepare` is called, `batch` until the batch starts, and `inference` from then on.
        """
        parent, tracer, enqueued = context.get_current(), self._tracer, time.time_ns()
        if tracer is None or not get_current_span(parent).is_recording():
            yield prepare, None
            return
        spans: list[Span] = []

        def next_span(name: str, attributes: Mapping[str, Any] | None = None) -> None:
            if spans:
                spans[-1].end()
            spans.append(tracer.start_span(name, parent, attributes=attributes))

        def traced(model: ServedModel) -> tuple[PreparedRequest, Respond[T]]:
            tracer.start_span("queue", parent, start_time=enqueued).end()
            next_span("batch")
            return prepare(model)

        try:
            yield traced, lambda size: next_span("inference", {BATCH_SIZE: size})
        except Exception:
            for span in spans[-1:]:
                span.set_status(Status(StatusCode.ERROR))
            raise
        finally:
            for span in spans[-1:]:
                span.end()

    def close(self, _: float) -> None:
        """Export the remaining spans; blocks, at worst as long as the collector does."""
        self._processor.shutdown()


class TracingMiddleware:
    """ASGI middleware that traces the inference requests of `app`; a response has its span in `traceparent`.

    `own_paths` returns whether the model itself answers all paths. `monotonic` is the time of the connections.
    """

    def __init__(
        self,
        app: ASGIApp,
        tracing: Tracing,
        own_paths: Callable[[], bool] = lambda: False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._tracing = tracing
        self._own_paths = own_paths
        self._monotonic = monotonic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        protocol = protocol_of(scope["method"], scope["path"], self._own_paths())
        headers = scope["headers"]
        if protocol == OTHER or not (has_parent(headers) or self._tracing.begins_trace()):
            await self._app(scope, receive, send)
            return
        began, start = time.time_ns(), self._monotonic()
        attributes = {"http.request.method": scope["method"], "url.path": scope["path"], "url.scheme": scope["scheme"]}
        with self._tracing.request_span(
            span_name(protocol, scope["path"]), context_headers(headers), attributes
        ) as span:
            scope[TRACE_KEY], scope[PARENT_KEY] = trace_id(span), parent_header(span)
            try:
                await self._app(scope, receive, _send_traced(scope[PARENT_KEY], span, send))
            except Exception:
                span.set_status(Status(StatusCode.ERROR))
                raise
            if (received := scope.get(RECEIVED_KEY, start)) > start:  # a small body comes together with the head
                self._tracing.record_received(span, began, began + int((received - start) * _NANOSECONDS))
            if REFUSED_KEY in scope:  # the connection responded before the body was complete
                _set_status(span, scope[REFUSED_KEY])
            if BROKEN_KEY in scope:
                span.set_status(Status(StatusCode.ERROR))


class TracedInference(Inference):
    """Inferences with spans for the queue and the model."""

    def __init__(
        self, tracing: Tracing, lifecycle: ModelLifecycle, slots: SlotQueue, workers: Workers, timeout: float,
        loop: AbstractEventLoop, batcher: Batcher | None = None,
    ) -> None:  # fmt: skip
        super().__init__(lifecycle, slots, workers, timeout, loop, batcher)
        self._tracing = tracing

    async def run(
        self, job: ModelJob[T], size: int, client: RequestClient, timeout: float | None = None,
        began: float | None = None, body: Lease = NO_LEASE,
    ) -> T:  # fmt: skip
        """Run `job` as `Inference.run` does, with spans."""
        return await super().run(self._tracing.trace_job(job), size, client, timeout, began, body)

    def occupy(
        self, client: RequestClient, began: float | None = None, slots: int = 1
    ) -> _AsyncGeneratorContextManager[RequestContext]:
        """Hold slots as `Inference.occupy` does, with spans."""
        return self._tracing.trace_upstream(super().occupy(client, began, slots))

    async def run_batched(
        self, batcher: Batcher, model: ServedModel, prepare: Prepare[T], size: int, request: RequestContext
    ) -> T:
        """Run a batched inference as `Inference.run_batched` does, with spans."""
        with self._tracing.trace_batched(prepare) as (traced, started):
            request = msgspec.structs.replace(request, on_batch=started)
            return await super().run_batched(batcher, model, traced, size, request)


def span_name(protocol: str, path: str) -> str:
    """Return the name of a request's span: one of few, whatever paths clients request."""
    if protocol == V1:
        return "POST /v1/models/{name}:predict"
    if protocol == MLFLOW:
        return "POST /invocations"
    if protocol == APPLICATION:
        return "application"
    if protocol == OPENAI:
        known = path.removeprefix(PREFIX)
        return f"POST {known}" if known in (*PATHS, RERANK_V2) else "POST /v1/…"
    verb = path.rpartition("/")[2]
    return f"POST /v2/models/{{name}}/{verb if verb in VERBS else '…'}"


def context_headers(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers of a trace's context; the last value of a repeated header."""
    return {name.decode(): value.decode("latin-1") for name, value in headers if name in CONTEXT_HEADERS}


def has_parent(headers: list[tuple[bytes, bytes]]) -> bool:
    """Return whether a request has the header of a trace's context, valid or not."""
    return any(name == HEADER for name, _ in headers)


def trace_id(span: Span) -> str:
    """Return the trace id of a span in hexadecimal; "" for a span that records nothing."""
    found = span.get_span_context()
    return f"{found.trace_id:032x}" if found.is_valid else ""


def parent_header(span: Span) -> str:
    """Return the `traceparent` for children of a span (W3C Trace Context §3.2); "" for one that records nothing."""
    found = span.get_span_context()
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}" if found.is_valid else ""


class _ChosenIds(RandomIdGenerator):
    """Random ids; the next trace has the `chosen` one unless that is 0."""

    def __init__(self) -> None:
        self.chosen = 0

    def generate_trace_id(self) -> int:
        """Return the id of a new trace."""
        chosen, self.chosen = self.chosen, 0
        return chosen or super().generate_trace_id()

    def unsampled(self) -> str:
        """Return the `traceparent` of a trace that is not sampled, so that an engine does not begin one of its own."""
        return f"00-{self.generate_trace_id():032x}-{self.generate_span_id():016x}-00"


@contextmanager
def _passed_on(traceparent: str) -> Iterator[None]:
    """Give a trace context to the requests to engines that this block sends."""
    token = TRACEPARENT.set(traceparent)
    try:
        yield
    finally:
        TRACEPARENT.reset(token)


def _set_status(span: Span, status: int) -> None:
    span.set_attribute("http.response.status_code", status)
    if status >= _FAILED:
        span.set_status(Status(StatusCode.ERROR))


def _send_traced(parent: str, span: Span, send: Send) -> Send:
    """Return a `send` that records the status in the span and adds the `traceparent` header."""

    def send_traced(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            _set_status(span, message["status"])
            if parent:
                message["headers"] = [*message["headers"], (HEADER, parent.encode())]
        return send(message)

    return send_traced
