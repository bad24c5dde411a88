"""Traces, as a collector receives them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, StatusCode
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from starlette.types import Message, Receive, Scope, Send

from serving.modelserver.base.errors import BadOptions
from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.base.options import parse_options
from serving.modelserver.base.responses import BROKEN_KEY
from serving.modelserver.connections.sockets import Sockets, bind
from serving.modelserver.observe.middleware import protocol_of
from serving.modelserver.observe.tracing import Tracing, TracingMiddleware, span_name
from serving.modelserver.server import ModelServer
from tests.serving.modelserver.client import HOST, Answer, ask, tensor
from tests.serving.modelserver.client import request as http_request
from tests.serving.modelserver.collector import Collector, collecting
from tests.serving.modelserver.conftest import NAME, REVISION, Running
from tests.support import models

Trace = Callable[..., Awaitable[Running]]
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
REQUEST = "POST /v2/models/{name}/infer"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
NO_METRICS = {"OTEL_METRICS_EXPORTER": "none"}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


@pytest.fixture
async def traced(tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Trace]:
    """Start a server that sends traces to the collector, or to the URL `to`."""
    started: list[ModelServer] = []

    async def start(model: bytes, *options: str, to: str = "", **more: str) -> Running:
        monkeypatch.setenv(ENDPOINT, to or collector.url)
        path = tmp_path / "model.onnx"
        path.write_bytes(model)
        environ = {"K_REVISION": REVISION, "HOST": HOST, ENDPOINT: to or collector.url, **NO_METRICS, **more}
        given = parse_options(["--name", NAME, "--storage-uri", path.as_uri(), *options], environ)
        sockets = Sockets(bind(HOST, 0, "PORT"), bind(HOST, 0, "MANAGEMENT_PORT"))
        server = ModelServer(given, sockets, ServerLimits())
        started.append(server)
        await server.start()
        await server.load()
        return Running(server, sockets)

    yield start
    for server in started:
        await server.close()


async def spans(running: Running, collector: Collector) -> dict[str, Any]:
    """Stop the server and return all spans by name."""
    await running.server.close()
    found: dict[str, Any] = {}
    for post in collector.posts:
        assert (post.path, post.headers["content-type"]) == ("/v1/traces", "application/x-protobuf")
        for group in ExportTraceServiceRequest.FromString(post.body).resource_spans:
            found["resource"] = attributes(group.resource)
            found |= {span.name: span for scope in group.scope_spans for span in scope.spans}
    return found


def attributes(holder: Any) -> dict[str, Any]:
    return {pair.key: pair.value.string_value or pair.value.int_value for pair in holder.attributes}


async def test_a_stream_that_breaks_after_its_status_has_left_is_an_error_of_its_span() -> None:
    begun: list[Span] = []

    class Once:
        def begins_trace(self) -> bool:
            return True

        @contextmanager
        def request_span(self, name: str, *_: Any) -> Iterator[Span]:
            with TracerProvider().get_tracer("test").start_as_current_span(name) as span:
                begun.append(span)
                yield span

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope[BROKEN_KEY] = 500

    async def silent() -> Message:
        return {}

    async def nowhere(_: Message) -> None: ...

    scope = {"method": "POST", "path": "/v2/models/m/generate_stream", "scheme": "http", "headers": []}
    await TracingMiddleware(app, cast(Tracing, Once()))(scope, silent, nowhere)
    assert [getattr(span, "status").status_code for span in begun] == [StatusCode.ERROR]  # noqa: B009 - the SDK's


async def call(running: Running, parent: str = PARENT, values: Any = (1.0,)) -> Answer:
    return await running.post({"inputs": [tensor(list(values))]}, traceparent=parent)


async def test_a_request_its_queue_and_its_inference_are_spans_of_the_callers_trace(
    traced: Trace, collector: Collector
) -> None:
    running = await traced(models.double())
    answer = await call(running)
    found = await spans(running, collector)
    request, queue, inference = found[REQUEST], found["queue"], found["inference"]
    assert {span.trace_id.hex() for span in (request, queue, inference)} == {TRACE_ID}
    assert request.parent_span_id.hex() == "b7ad6b7169203331"
    assert queue.parent_span_id == inference.parent_span_id == request.span_id
    assert answer.headers["traceparent"] == f"00-{TRACE_ID}-{request.span_id.hex()}-01"
    assert attributes(request) == {
        "http.request.method": "POST", "url.path": "/v2/models/m/infer", "url.scheme": "http",
        "http.response.status_code": 200,
    }  # fmt: skip
    assert (found["resource"]["service.name"], found["resource"]["service.version"]) == (NAME, REVISION)


async def test_the_queues_span_ends_where_the_models_begins_in_its_thread(traced: Trace, collector: Collector) -> None:
    running = await traced(models.slow(), "--slots", "1")
    await asyncio.gather(call(running), call(running, PARENT.replace("0af7", "1bf7")))
    await running.server.close()
    exported = [ExportTraceServiceRequest.FromString(post.body) for post in collector.posts]
    all_spans = [
        span for message in exported for group in message.resource_spans for scope in group.scope_spans
        for span in scope.spans
    ]  # fmt: skip
    traces = {span.trace_id for span in all_spans}
    assert len(traces) == 2 and len(all_spans) == 6
    waits = []
    for trace in traces:
        queue, inference = (
            next(span for span in all_spans if (span.trace_id, span.name) == (trace, name))
            for name in ("queue", "inference")
        )
        assert queue.end_time_unix_nano <= inference.start_time_unix_nano < inference.end_time_unix_nano
        waits.append((queue.end_time_unix_nano - queue.start_time_unix_nano, inference))
    (short, first), (long, second) = sorted(waits, key=lambda wait: wait[0])
    assert second.start_time_unix_nano >= first.end_time_unix_nano - 1_000_000
    assert long > short


async def test_requests_that_share_an_inference_have_spans_of_their_own(traced: Trace, collector: Collector) -> None:
    running = await traced(models.slow(), "--max-batch-size", "4")
    answers = await asyncio.gather(*(call(running, f"00-{digit * 32}-{'b' * 16}-01") for digit in "123"))
    assert [answer.status for answer in answers] == [200] * 3
    await running.server.close()
    exported = [ExportTraceServiceRequest.FromString(post.body) for post in collector.posts]
    names: dict[str, list[str]] = {}
    for message in exported:
        for group in message.resource_spans:
            for scope in group.scope_spans:
                for span in scope.spans:
                    names.setdefault(span.trace_id.hex(), []).append(span.name)
    assert sorted(names) == [digit * 32 for digit in "123"]
    assert all(sorted(found) == sorted([REQUEST, "queue", "batch", "inference"]) for found in names.values())


async def test_a_batch_has_its_size_and_ends_the_wait_for_it(traced: Trace, collector: Collector) -> None:
    running = await traced(models.slow(), "--max-batch-size", "4")
    assert (await call(running)).status == 200
    found = await spans(running, collector)
    assert attributes(found["inference"]) == {"knodel.batch.size": 1}
    ends = [found[name].end_time_unix_nano for name in ("queue", "batch", "inference", REQUEST)]
    assert ends == sorted(ends)
    assert {found[name].parent_span_id for name in ("queue", "batch", "inference")} == {found[REQUEST].span_id}


async def test_a_body_that_comes_after_its_head_is_a_span(traced: Trace, collector: Collector) -> None:
    running = await traced(models.double())
    caller = await running.connect()
    body = json.dumps({"inputs": [tensor([1.0])]}).encode()
    whole = http_request("POST", "/v2/models/m/infer", body, traceparent=PARENT)
    await caller.send(whole[: -len(body)])
    await asyncio.sleep(0.05)
    await caller.send(body)
    assert (await caller.answer()).status == 200
    caller.close()
    found = await spans(running, collector)
    received, whole_span = found["receive"], found[REQUEST]
    assert received.parent_span_id == whole_span.span_id
    assert received.start_time_unix_nano >= whole_span.start_time_unix_nano - 1_000_000
    assert received.end_time_unix_nano - received.start_time_unix_nano > 20_000_000


async def test_a_request_without_a_trace_gets_one_and_the_access_log_names_it(
    traced: Trace, collector: Collector, capfd: pytest.CaptureFixture[str]
) -> None:
    running = await traced(models.double(), "--access-log")
    answer = await running.infer(tensor([1.0]))
    found = await spans(running, collector)
    trace = found[REQUEST].trace_id.hex()
    assert answer.headers["traceparent"].split("-")[1] == trace
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    assert [line["trace"] for line in lines] == [trace]


async def test_a_trace_that_its_caller_does_not_sample_is_passed_on_and_not_sent(
    traced: Trace, collector: Collector
) -> None:
    running = await traced(models.double())
    answer = await call(running, PARENT[:-2] + "00")
    assert answer.headers["traceparent"].startswith(f"00-{TRACE_ID}-") and answer.headers["traceparent"].endswith("-00")
    assert await spans(running, collector) == {}


@pytest.mark.parametrize("parent", ["", "00-xyz", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "ff" + PARENT[2:]])
async def test_a_header_that_is_none_begins_a_trace(traced: Trace, collector: Collector, parent: str) -> None:
    running = await traced(models.double())
    assert (await call(running, parent)).status == 200
    found = await spans(running, collector)
    assert found[REQUEST].parent_span_id == b""


async def test_health_and_metadata_have_no_spans(traced: Trace, collector: Collector) -> None:
    running = await traced(models.double())
    for path in ("/v2/health/ready", "/v2/models/m"):
        assert "traceparent" not in (await running.get(path, traceparent=PARENT)).headers
    assert await spans(running, collector) == {}


async def test_a_fault_of_the_callers_is_no_error_of_the_span_and_a_failure_is(
    traced: Trace, collector: Collector
) -> None:
    running = await traced(models.double())
    assert (await call(running, values=["no number"])).status == 400
    found = await spans(running, collector)
    assert attributes(found[REQUEST])["http.response.status_code"] == 400
    assert found[REQUEST].status.code == 0
    assert found["inference"].status.code == 2
    assert not found["inference"].events  # no stack trace


async def test_a_collector_that_does_not_answer_delays_nobody(
    traced: Trace, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")  # seconds that a request would wait for the collector
    collector.hold()
    running = await traced(models.double())
    start = time.monotonic()
    assert [(await call(running)).status for _ in range(600)] == [200] * 600  # more than one batch
    assert time.monotonic() - start < 60
    collector.release()


async def test_a_collector_that_is_not_there_keeps_no_server_from_ending(
    traced: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.modelserver.observe.observability.CLOSE_TIMEOUT", 0.1)
    exporter: list[OTLPSpanExporter] = []

    def made() -> OTLPSpanExporter:
        exporter.append(OTLPSpanExporter())
        return exporter[-1]

    monkeypatch.setattr("clusters.net.otlp.export.OTLPSpanExporter", made)
    running = await traced(models.double(), to="http://127.0.0.1:9")
    assert (await call(running)).status == 200
    async with asyncio.timeout(2):
        await running.server.close()
    for one in exporter:  # whose thread would try again for ten seconds, and say so in the log of other tests
        one.shutdown()  # type: ignore[no-untyped-call]


def test_a_protocol_that_is_not_spoken_is_refused() -> None:
    environ = {ENDPOINT: "http://collector:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    with pytest.raises(BadOptions, match="OTEL_EXPORTER_OTLP_PROTOCOL='grpc'"):
        parse_options(["--name", NAME, "--storage-uri", "file:///m.onnx"], environ)


async def test_what_is_off_is_not_imported() -> None:
    script = (
        "import sys, serving.modelserver.run\n"
        "print([name for name in ('opentelemetry', 'grpc', 'serving.modelserver.observe.payload_sender')"
        " if name in sys.modules])"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, env={"PATH": os.environ["PATH"]}, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert output.decode().strip() == "[]"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/openai/v1/embeddings", "POST /v1/embeddings"),
        ("/v1/chat/completions", "POST /v1/chat/completions"),
        ("/v2/rerank", "POST /v2/rerank"),
        ("/v1/any/path", "POST /v1/…"),
        ("/v2/models/m/infer", REQUEST),
    ],
)
def test_spans_of_openais_paths_have_few_names(path: str, name: str) -> None:
    assert span_name(protocol_of("POST", path), path) == name


async def test_a_part_of_the_requests_begin_a_trace_and_those_of_a_trace_belong_to_it(
    traced: Trace, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    running = await traced(models.double())
    answers = [await running.infer(tensor([1.0])) for _ in range(60)]
    assert (await call(running)).headers["traceparent"].split("-")[1] == TRACE_ID
    begun = [answer.headers["traceparent"] for answer in answers if "traceparent" in answer.headers]
    assert 10 < len(begun) < 50  # 30, with a standard deviation of 4
    await running.server.close()
    sent = {
        span.trace_id.hex() for post in collector.posts
        for group in ExportTraceServiceRequest.FromString(post.body).resource_spans
        for scope in group.scope_spans for span in scope.spans
    }  # fmt: skip
    assert sent == {TRACE_ID, *(header.split("-")[1] for header in begun)}


async def exemplars(running: Running) -> dict[str, list[str]]:
    """Return the traces in the exemplars of the latency of requests, by protocol, in the order of the buckets."""
    page = await ask(running.management_port, http_request("GET", "/metrics", accept="application/openmetrics-text"))
    assert page.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    found: dict[str, list[str]] = {}
    for family in text_string_to_metric_families(page.body.decode()):  # type: ignore[no-untyped-call]
        for sample in family.samples:
            if sample.exemplar is not None:
                assert family.name == "knodel_request_duration_seconds"
                assert sample.exemplar.value <= float(sample.labels["le"])
                found.setdefault(sample.labels["protocol"], []).append(sample.exemplar.labels["trace_id"])
                assert len(sample.exemplar.labels["span_id"]) == 16
    return found


async def test_the_latency_of_requests_has_the_newest_sampled_trace_as_its_exemplar(
    traced: Trace, collector: Collector
) -> None:
    running = await traced(models.double())
    await running.get("/v2/health/ready", traceparent=PARENT)
    await call(running, PARENT[:-2] + "00")
    assert await exemplars(running) == {}
    for digit in "12":
        await call(running, f"00-{digit * 32}-{'b' * 16}-01")
    found = await exemplars(running)
    assert "2" * 32 in found["v2"] and set(found) == {"v2"}
    plain = (await ask(running.management_port, http_request("GET", "/metrics"))).body.decode()
    assert "trace_id" not in plain
