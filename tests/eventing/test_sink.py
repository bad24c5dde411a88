"""The HTTP sink against a real server; the translation to CDEvents; spans of the SDK."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from clusters.base.objects import Key
from eventing.objects.outbox import PROMOTED, ROLLED_BACK, STARTED, OutboxEntry
from eventing.objects.outgoing import make_cloud_event
from eventing.outbound.service_events import purl_of, to_cdevents
from eventing.outbound.sink import HttpSink, NotDelivered
from eventing.outbound.spans import Span, SpanEvent
from eventing.outbound.tracing import OtelSpans

MAGIKA = Key("default", "magika")
DATA = {
    "namespace": "default",
    "model": "magika",
    "revision": "magika-00002",
    "version": "7 a",
    "digest": "sha256:" + "0" * 64,
    "storageUri": "s3://models/magika/7",
}


def event(type: str = PROMOTED) -> dict[str, Any]:
    entry = OutboxEntry("e1", type, "2026-01-01T00:00:00.000Z", "1", "magika-00002", DATA, "42", "/train/magika")
    return make_cloud_event(MAGIKA, entry, None)


class Server:
    """Answers with `status` and `headers`; `requests` are (content type, body)."""

    def __init__(self) -> None:
        self.status = 202
        self.headers: dict[str, str] = {}
        self.requests: list[tuple[str, bytes]] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.requests.append((request.headers["Content-Type"], await request.read()))
        return web.Response(status=self.status, headers=self.headers, text="because\nof this")


@contextlib.asynccontextmanager
async def server() -> AsyncIterator[tuple[Server, HttpSink]]:
    made, app = Server(), web.Application()
    app.router.add_post("/{path:.*}", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/broker"
    sink = HttpSink(made.url)
    try:
        yield made, sink
    finally:
        await sink.close()
        await runner.cleanup()


async def test_an_event_arrives_in_structured_mode_as_the_sdk_reads_it() -> None:
    async with server() as (made, sink):
        assert await sink.send(event()) == f"{made.url} answered 202"
    [(content_type, body)] = made.requests
    read = from_http_event(HTTPMessage({"content-type": content_type}, body))
    assert (read.get_id(), read.get_type(), read.get_extension("causationid")) == ("e1", PROMOTED, "42")
    assert read.get_data() == DATA


@pytest.mark.parametrize(
    ("status", "again"),
    [(404, True), (408, True), (409, True), (429, True), (500, True), (503, True), (302, False), (400, False),
     (401, False), (403, False), (410, False), (413, False), (415, False)],
)  # fmt: skip
async def test_an_answer_says_whether_to_try_again(status: int, again: bool) -> None:
    async with server() as (made, sink):
        made.status, made.headers = status, {"Location": made.url} if status == 302 else {}
        with pytest.raises(NotDelivered, match=rf"answered {status}: because of this") as caught:
            await sink.send(event())
    assert caught.value.again == again
    assert len(made.requests) == 1


async def test_a_sink_may_say_when() -> None:
    async with server() as (made, sink):
        made.status, made.headers = 503, {"Retry-After": "120"}
        with pytest.raises(NotDelivered) as caught:
            await sink.send(event())
    assert caught.value.retry_after == 120


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/none", "http://no-such-host.invalid/"])
async def test_nobody_there_may_be_there_later(url: str) -> None:
    sink = HttpSink(url)
    with pytest.raises(NotDelivered, match="did not answer") as caught:
        await sink.send(event())
    await sink.close()
    assert caught.value.again


@pytest.mark.parametrize(
    ("type", "word"),
    [(PROMOTED, "dev.cdevents.service.deployed.0.2.0"), (ROLLED_BACK, "dev.cdevents.service.rolledback.0.2.0")],
)
def test_an_outcome_in_the_words_of_cdevents(type: str, word: str) -> None:
    made = to_cdevents(event(type))
    assert made is not None
    body = json.loads(json.dumps(made["data"]))
    assert (made["type"], made["subject"], made["datacontenttype"]) == (
        word, "default/magika", "application/cdevents+json",
    )  # fmt: skip
    assert body["context"] == {
        "version": "0.4.1", "id": "e1", "source": made["source"], "type": word, "timestamp": made["time"],
    }  # fmt: skip
    assert body["subject"]["content"] == {"environment": {"id": "default"}, "artifactId": purl_of(DATA)}
    assert made["causationid"] == "42"


def test_cdevents_have_no_word_for_a_start() -> None:
    assert to_cdevents(event(STARTED)) is None


def test_a_version_as_a_package_url() -> None:
    digest = "sha256%3A" + "0" * 64
    assert purl_of(DATA) == (f"pkg:generic/magika@7%20a?checksum={digest}&download_url=s3%3A%2F%2Fmodels%2Fmagika%2F7")
    assert purl_of({"model": "magika", "revision": "magika-00002"}) == "pkg:generic/magika@magika-00002"


def test_a_span_is_in_the_trace_of_its_event_with_the_times_that_are_told() -> None:
    exporter = InMemorySpanExporter()
    spans = OtelSpans(SimpleSpanProcessor(exporter))
    start = datetime(2026, 1, 1, tzinfo=UTC)
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    mark = SpanEvent("10 % passed", start + timedelta(seconds=1), {"knodel.percent": 10})
    end = start + timedelta(seconds=2)
    spans.record(Span("rollout magika", parent, start, end, {"knodel.outcome": "rolledback"}, (mark,), "too slow"))
    spans.record(Span("event applied", "nonsense", start, end))
    spans.close()
    first, second = exporter.get_finished_spans()
    assert first.context is not None
    assert first.parent is not None
    assert (first.context.trace_id, first.parent.span_id) == (0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7)
    assert first.start_time is not None
    assert first.end_time is not None
    assert first.end_time - first.start_time == 2_000_000_000
    assert [(one.name, one.timestamp - first.start_time) for one in first.events] == [("10 % passed", 1_000_000_000)]
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "too slow")
    assert second.parent is None
