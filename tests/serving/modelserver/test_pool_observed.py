"""A request that waits in a pool member is counted, logged and traced once, with the model of the claim."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.base.options import LOAD_TOKEN, parse_options
from serving.modelserver.connections.sockets import Sockets, bind
from serving.modelserver.server import ModelServer
from tests.serving.modelserver.client import HOST, ask, request
from tests.serving.modelserver.collector import Collector, collecting
from tests.serving.modelserver.pool import REVISION, TOKEN_SHA256, Member, infer_of, store_of
from tests.support import models
from tests.support.wait import eventually

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@asynccontextmanager
async def member(tmp_path: Path, collector: Collector) -> AsyncIterator[Member]:
    """Run a pool member that sends all of its requests to the collector."""
    environ = {
        "HOST": HOST, "TMPDIR": str(tmp_path), LOAD_TOKEN: TOKEN_SHA256, "KNODEL_ALLOW_HOSTS": HOST,
        ENDPOINT: collector.url,
    }  # fmt: skip
    options = parse_options(["--pool", "--access-log", "--payload-log", f"{collector.url}/log"], environ)
    sockets = Sockets(bind(HOST, 0, "PORT"), bind(HOST, 0, "MANAGEMENT_PORT"))
    server = ModelServer(options, sockets, ServerLimits())
    await server.start()
    made = Member(server, sockets)
    try:
        yield made
    finally:
        await made.end()
        await server.close()


async def test_it_is_logged_counted_and_traced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with collecting() as collector:
        monkeypatch.setenv(ENDPOINT, collector.url)
        async with store_of(models.double()) as store, member(tmp_path, collector) as running:
            await running.load(store.uri)
            waiting = asyncio.create_task(ask(running.port, infer_of("m", 1.0)))
            await eventually(lambda: running.server.waiting_requests == 1)
            store.open.set()
            assert (await waiting).status == 200
            assert (await ask(running.port, infer_of("m", 2.0))).status == 200
            page = (await ask(running.management_port, request("GET", "/metrics"))).body.decode()
    assert f'knodel_requests_total{{revision="{REVISION}",protocol="v2",code="200"}} 2\n' in page
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    assert [line["status"] for line in lines] == [200, 200]
    events = [post for post in collector.posts if post.path == "/log"]
    assert [post.headers["ce-knodelrevision"] for post in events] == [REVISION] * 4
    spans = [
        span.name
        for post in collector.posts
        if post.path == "/v1/traces"
        for group in ExportTraceServiceRequest.FromString(post.body).resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]
    assert sorted(spans) == sorted(["POST /v2/models/{name}/infer", "queue", "inference"] * 2)
    traced = {line["trace"] for line in lines}
    assert traced == {post.headers["ce-traceparent"].split("-")[1] for post in events}
