"""One trace from the caller to the model, over gateway, activator and server; metrics; exemplars in Prometheus.

The collector is an HTTP server of the test, which decodes what it receives with OpenTelemetry's own definitions.
"""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from examples.quickstart_llm import model_file
from tests.platform.machine import KNODEL, Machine, machine
from tests.scenarios.world import infer_body
from tests.serving.modelserver.collector import Collector, collecting
from tests.support.ports import free_ports

PROMETHEUS = shutil.which("prometheus")
PATIENCE = 60.0  # s; spans are sent every 5 s, pages are read every 5 s
CALLER = "b7ad6b7169203331"
INFER = "POST /v2/models/{name}/infer"
CHAT = "POST /v1/chat/completions"

ASLEEP = """
apiVersion: knodel.dev/v1alpha1
kind: Model
metadata: {name: asleep}
spec: {storageUri: file://PATH, version: "1", maxReplicas: 1, scaleToZeroAfter: 1s}
"""

T = TypeVar("T")


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


@pytest.fixture(scope="module")
def platform(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A platform that sends to the collector, as its models do: two small ones, and a language model."""
    with machine(tmp_path_factory.mktemp("platform")) as made:
        made.environment |= {
            "KNODEL_SERVER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_METRIC_EXPORT_INTERVAL": "1000",
        }
        made.up()
        made.run("deploy", "double", "--uri", made.artifact("double"), "--min", "1")
        made.run("deploy", "-f", "-", stdin=ASLEEP.replace("PATH", made.artifact("double")))
        made.run("deploy", "smol", "--uri", str(model_file()), "--min", "1")
        yield made


def send(platform: Machine, model: str, path: str, body: Any, trace: str, flags: str = "01") -> Any:
    """Send a request through the gateway as a caller with a span of its own, and return the answer with its headers."""
    host = urlsplit(platform.model(model)["status"]["url"]).hostname
    connection = http.client.HTTPConnection("127.0.0.1", platform.port, timeout=PATIENCE)
    headers = {"Host": str(host), "Content-Type": "application/json", "traceparent": f"00-{trace}-{CALLER}-{flags}"}
    try:
        connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        content = response.read()
        assert response.status == 200, content
        return response
    finally:
        connection.close()


def spans(collector: Collector, trace: str, last: str) -> dict[str, Any]:
    """Return the spans of a trace by name, each with the name of its service; none until the one that ends `last`."""
    found: dict[str, Any] = {}
    for post in [post for post in collector.posts if post.path == "/v1/traces"]:
        for group in ExportTraceServiceRequest.FromString(post.body).resource_spans:
            names = {pair.key: pair.value.string_value for pair in group.resource.attributes}
            for span in (span for scope in group.scope_spans for span in scope.spans):
                if span.trace_id.hex() == trace:
                    found[span.name] = names["service.name"], span
    return found if last in found else {}


def metrics(collector: Collector, service: str) -> dict[str, Any]:
    """Return the newest metrics of a service by name."""
    found: dict[str, Any] = {}
    for post in [post for post in collector.posts if post.path == "/v1/metrics"]:
        for group in ExportMetricsServiceRequest.FromString(post.body).resource_metrics:
            if ("service.name", service) in [(pair.key, pair.value.string_value) for pair in group.resource.attributes]:
                found |= {metric.name: metric for scope in group.scope_metrics for metric in scope.metrics}
    return found


def until(look: Callable[[], T]) -> T:
    """Return the first true answer."""
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return found


@pytest.mark.parametrize(("model", "trace"), [("double", "1" * 32), ("asleep", "2" * 32)])
def test_one_trace_leads_from_the_caller_to_the_model(
    platform: Machine, collector: Collector, model: str, trace: str
) -> None:
    """The model `asleep` starts for this request, so the activator passes the context on, too."""
    if model == "asleep":
        until(lambda: platform.model(model)["status"]["replicas"]["ready"] == 0)
    answer = send(platform, model, f"/v2/models/{model}/infer", infer_body(1.0), trace)
    found = until(lambda: spans(collector, trace, INFER))
    assert {service for service, _ in found.values()} == {model}
    request, queue, inference = (found[name][1] for name in (INFER, "queue", "inference"))
    assert request.parent_span_id.hex() == CALLER
    assert queue.parent_span_id == inference.parent_span_id == request.span_id
    assert answer.headers["traceparent"] == f"00-{trace}-{request.span_id.hex()}-01"
    begins, ends = zip(
        *((one.start_time_unix_nano, one.end_time_unix_nano) for one in (request, inference)), strict=True
    )
    assert begins[0] <= begins[1] < ends[1] <= ends[0]


def test_a_language_model_has_a_span_for_its_engine(platform: Machine, collector: Collector) -> None:
    trace = f"{0xAB:032x}"
    body = {"model": "smol", "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 4}
    send(platform, "smol", "/openai/v1/chat/completions", body, trace)
    found = until(lambda: spans(collector, trace, CHAT))
    request, upstream = found[CHAT][1], found["upstream"][1]
    assert request.parent_span_id.hex() == CALLER
    assert upstream.parent_span_id == request.span_id
    assert upstream.kind == 3  # client


def test_the_decision_of_the_caller_holds(platform: Machine, collector: Collector) -> None:
    unsampled, sampled = f"{0xCD:032x}", f"{0xCE:032x}"
    send(platform, "double", "/v2/models/double/infer", infer_body(1.0), unsampled, "00")
    send(platform, "double", "/v2/models/double/infer", infer_body(1.0), sampled)
    until(lambda: spans(collector, sampled, INFER))
    assert spans(collector, unsampled, INFER) == {}


@pytest.mark.skipif(PROMETHEUS is None, reason="needs Prometheus: apt-get install prometheus")
def test_prometheus_has_the_trace_of_a_request_as_an_exemplar(platform: Machine, tmp_path: Path) -> None:
    assert PROMETHEUS is not None
    trace = f"{0xEF:032x}"
    (port,) = free_ports(1)
    argv = [
        PROMETHEUS, f"--config.file={platform.state / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--enable-feature=exemplar-storage", "--log.level=warn",
    ]  # fmt: skip
    send(platform, "double", "/v2/models/double/infer", infer_body(1.0), trace)
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(argv, stdout=log, stderr=log) as process:
        try:
            found = until(lambda: exemplars(port, 'knodel_request_duration_seconds_bucket{model="double"}'))
        finally:
            process.terminate()
    assert trace in [one["labels"]["trace_id"] for series in found for one in series["exemplars"]]


def exemplars(port: int, query: str) -> list[Any]:
    """Return Prometheus' exemplars of the last hour."""
    now = time.time()
    given = urlencode({"query": query, "start": now - 3600, "end": now + 60})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", f"/api/v1/query_exemplars?{given}")
        return list(json.loads(connection.getresponse().read()).get("data") or ())
    except (ConnectionRefusedError, json.JSONDecodeError):  # it starts
        return []
    finally:
        connection.close()


def test_the_live_view_has_the_requests(platform: Machine) -> None:
    argv = [*KNODEL, "top", "--watch", "--interval", "500ms", "-o", "json"]
    with subprocess.Popen(argv, env=platform.environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                found = {one["model"]: one for one in json.loads(line)["models"]}
                if found["double"]["requestsPerSecond"]:
                    break
                send(platform, "double", "/v2/models/double/infer", infer_body(1.0), f"{0xBA:032x}", "00")
        finally:
            process.terminate()
    assert found["double"]["p99Seconds"] > 0
    assert found["double"]["errorShare"] == 0
    assert found["double"]["replicas"]["ready"] == 1


def test_metrics_of_platform_and_models_are_sent(platform: Machine, collector: Collector) -> None:
    """A model server sends its last numbers when it ends."""
    own = until(lambda: metrics(collector, "knodel"))
    assert own["knodel_informer_objects"].WhichOneof("data") == "gauge"
    assert own["knodel_reconcile_total"].sum.is_monotonic
    platform.run("delete", "double")
    found = until(lambda: metrics(collector, "double"))
    points = found["knodel_requests_total"].sum.data_points
    counted = {pair.value.string_value: point.as_double for point in points for pair in point.attributes}
    assert counted["v2"] >= 3
    assert any(point.exemplars for point in found["knodel_request_duration_seconds"].histogram.data_points)
