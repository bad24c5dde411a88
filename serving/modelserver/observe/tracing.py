"""OpenTelemetry: a span for each request for an inference, in it one for the queue and one for the model.

Imported only where a collector is named, for it takes a quarter of a second. The SDK reads its own variables (endpoint,
headers, sampler, resource). Spans leave by OTLP over HTTP in a thread of its own, and what its queue does not hold is
dropped: no request waits for the collector. The three spans of a request cost 0.1 ms, one that is not sampled
(`OTEL_TRACES_SAMPLER`) a tenth of that.
"""

from __future__ import annotations

import time
from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from opentelemetry import context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.engines.base.engine import Cancellation
from serving.modelserver.base.limits import NO_LEASE, Lease
from serving.modelserver.codec.protocol_v2 import PreparedRequest
from serving.modelserver.connections.connection import BROKEN_KEY, REFUSED_KEY
from serving.modelserver.execution.admission import Admission
from serving.modelserver.execution.inference import Ask, Encode, Inference, Left, ModelJob, Patience
from serving.modelserver.execution.lifecycle import Lifecycle, ServedModel
from serving.modelserver.execution.workers import Workers
from serving.modelserver.observe.observed import OTHER, PARENT_KEY, TRACE_KEY, V1, protocol_of

if TYPE_CHECKING:
    from serving.modelserver.execution.batcher import Batcher

T = TypeVar("T")

VERBS: Final = frozenset({"infer", "generate", "generate_stream"})
HEADER: Final = b"traceparent"
_CONTEXT: Final = TraceContextTextMapPropagator()
CARRIED: Final = (HEADER, b"tracestate")
"""Headers of a trace's context (W3C Trace Context)."""
_FAILED: Final = 500  # status from which on it is the server's fault (OpenTelemetry's conventions for HTTP)


class Tracing:
    """Spans of one server, which go to `processor`."""

    def __init__(self, processor: SpanProcessor) -> None:
        self._processor = processor
        self._tracer: Tracer | None = None  # nobody was told to send requests here before the model is known

    def assign(self, model: str, revision: str) -> None:
        """Spans are this model's from now on; what the environment says of the service comes first."""
        said = OTELResourceDetector().detect().attributes
        resource = Resource.create({"service.name": model, "service.version": revision, **said})
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(self._processor)
        self._tracer = provider.get_tracer("knodel")

    @contextmanager
    def request(self, name: str, carried: Mapping[str, str], attributes: Mapping[str, Any]) -> Iterator[Span]:
        """The span of a request whose caller sent the headers `carried`; inside of it `staged` finds it."""
        if self._tracer is None:
            yield get_current_span(context.Context())  # records nothing
            return
        parent = _CONTEXT.extract(carried)
        with self._tracer.start_as_current_span(
            name, parent, SpanKind.SERVER, attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            yield span

    def current_id(self) -> str:
        """The id of the trace that this runs in, "" for none."""
        return trace_id(get_current_span())

    def staged(self, job: ModelJob[T]) -> ModelJob[T]:
        """`job`, in a span of its own, behind one of the time until it began; as it is outside of a request's span."""
        parent, tracer, asked = context.get_current(), self._tracer, time.time_ns()
        if tracer is None or not get_current_span(parent).is_recording():
            return job

        def run(model: ServedModel, cancellation: Cancellation | None) -> T:
            tracer.start_span("queue", parent, start_time=asked).end()
            with tracer.start_as_current_span("inference", parent, record_exception=False):
                return job(model, cancellation)

        return run

    @contextmanager
    def shared(self, ask: Ask[T]) -> Iterator[Ask[T]]:
        """`ask`, for an inference that may be shared: one span until it is called, one from then on."""
        parent, tracer, asked = context.get_current(), self._tracer, time.time_ns()
        if tracer is None or not get_current_span(parent).is_recording():
            yield ask
            return
        begun: list[Span] = []

        def begins(model: ServedModel) -> tuple[PreparedRequest, Encode[T]]:
            tracer.start_span("queue", parent, start_time=asked).end()
            begun.append(tracer.start_span("inference", parent))
            return ask(model)

        try:
            yield begins
        except Exception:
            for span in begun:
                span.set_status(Status(StatusCode.ERROR))
            raise
        finally:
            for span in begun:
                span.end()

    def close(self, _: float) -> None:
        """Send what is left; blocks, at worst as long as the collector does."""
        self._processor.shutdown()


class Traced:
    """ASGI application: `app`, whose inferences have spans; the answer tells its own as `traceparent`."""

    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        protocol = protocol_of(scope["method"], scope["path"])
        if protocol == OTHER:
            await self._app(scope, receive, send)
            return
        attributes = {"http.request.method": scope["method"], "url.path": scope["path"], "url.scheme": scope["scheme"]}
        with self._tracing.request(span_name(protocol, scope["path"]), carried(scope["headers"]), attributes) as span:
            scope[TRACE_KEY], scope[PARENT_KEY] = trace_id(span), parent_header(span)
            try:
                await self._app(scope, receive, _telling(scope[PARENT_KEY], span, send))
            except Exception:
                span.set_status(Status(StatusCode.ERROR))
                raise
            if REFUSED_KEY in scope:  # its connection answered while the body came
                _note(span, scope[REFUSED_KEY])
            if BROKEN_KEY in scope:
                span.set_status(Status(StatusCode.ERROR))


class TracedInference(Inference):
    """Inferences whose queue and model have spans."""

    def __init__(
        self, tracing: Tracing, lifecycle: Lifecycle, admission: Admission, workers: Workers, timeout: float,
        loop: AbstractEventLoop, batcher: Batcher | None = None,
    ) -> None:  # fmt: skip
        super().__init__(lifecycle, admission, workers, timeout, loop, batcher)
        self._tracing = tracing

    async def run(
        self, job: ModelJob[T], size: int, left: Left, timeout: float | None = None, began: float | None = None,
        body: Lease = NO_LEASE,
    ) -> T:  # fmt: skip
        """As it is without spans."""
        return await super().run(self._tracing.staged(job), size, left, timeout, began, body)

    async def share(self, batcher: Batcher, model: ServedModel, ask: Ask[T], size: int, patience: Patience) -> T:
        """As it is without spans."""
        with self._tracing.shared(ask) as watched:
            return await super().share(batcher, model, watched, size, patience)


def exporting() -> SpanProcessor:
    """To the collector that the environment names."""
    return BatchSpanProcessor(OTLPSpanExporter())


def span_name(protocol: str, path: str) -> str:
    """Few names, whatever callers ask for."""
    if protocol == V1:
        return "POST /v1/models/{name}:predict"
    verb = path.rpartition("/")[2]
    return f"POST /v2/models/{{name}}/{verb if verb in VERBS else '…'}"


def carried(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers of a trace's context; of one that comes twice the last."""
    return {name.decode(): value.decode("latin-1") for name, value in headers if name in CARRIED}


def trace_id(span: Span) -> str:
    """In hexadecimal, "" of a span that records nothing."""
    found = span.get_span_context()
    return f"{found.trace_id:032x}" if found.is_valid else ""


def parent_header(span: Span) -> str:
    """`traceparent` of what the span causes (W3C Trace Context §3.2), "" of a span that records nothing."""
    found = span.get_span_context()
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}" if found.is_valid else ""


def _note(span: Span, status: int) -> None:
    span.set_attribute("http.response.status_code", status)
    if status >= _FAILED:
        span.set_status(Status(StatusCode.ERROR))


def _telling(parent: str, span: Span, send: Send) -> Send:
    """`send` that notes the status and adds the header."""

    def tell(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            _note(span, message["status"])
            if parent:
                message["headers"] = [*message["headers"], (HEADER, parent.encode())]
        return send(message)

    return tell
