"""Traces over the process that computes a request: its own spans are children of this server's."""

from __future__ import annotations

import re
from typing import Any

import pytest

from serving.engines.base import registry
from tests.serving.modelserver.collector import Collector
from tests.serving.modelserver.conftest import NAME
from tests.serving.modelserver.test_ray_service import ALLOWED
from tests.serving.modelserver.test_tracing import PARENT, TRACE_ID, Trace, attributes, collector, spans, traced
from tests.support.ray_service import Application, ray_service

__all__ = ["collector", "traced"]

CHAT = "/openai/v1/chat/completions"
SPAN = "POST /v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hi"}]
CALLER = "b7ad6b7169203331"


@pytest.fixture(autouse=True)
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the format of the stub of an engine."""
    made = registry.ModelFormat("stub", "tests.support.engine_stub.engine", "json", "server", (".stub",))
    monkeypatch.setitem(registry.FORMATS, "stub", made)


def check_parents(found: dict[str, Any], name: str, passed_on: str) -> None:
    """Check the way from the caller over the request to the upstream, whose id is passed on."""
    whole, queue, upstream = found[name], found["queue"], found["upstream"]
    assert {span.trace_id.hex() for span in (whole, queue, upstream)} == {TRACE_ID}
    assert whole.parent_span_id.hex() == CALLER
    assert queue.parent_span_id == upstream.parent_span_id == whole.span_id
    assert passed_on == f"00-{TRACE_ID}-{upstream.span_id.hex()}-01"


async def test_an_engine_of_a_language_model_gets_the_context_of_its_span(traced: Trace, collector: Collector) -> None:
    running = await traced(b" ", "--format", "stub")
    answer = await running.post({"model": NAME, "messages": MESSAGES}, CHAT, traceparent=PARENT)
    check_parents(await spans(running, collector), SPAN, answer.json["told"]["trace"])


async def test_the_span_of_a_stream_lasts_until_its_end(traced: Trace, collector: Collector) -> None:
    running = await traced(b" ", "--format", "stub")
    answer = await running.post({"model": NAME, "messages": MESSAGES, "stream": True}, CHAT, traceparent=PARENT)
    assert answer.body.count(b"data: ") > 2
    found = await spans(running, collector)
    assert found["upstream"].parent_span_id == found[SPAN].span_id
    assert found["upstream"].end_time_unix_nano <= found[SPAN].end_time_unix_nano


async def test_a_caller_that_does_not_sample_is_not_sampled_by_the_engine(traced: Trace, collector: Collector) -> None:
    running = await traced(b" ", "--format", "stub")
    answer = await running.post({"model": NAME, "messages": MESSAGES}, CHAT, traceparent=PARENT[:-2] + "00")
    trace = answer.json["told"]["trace"]
    assert trace.startswith(f"00-{TRACE_ID}-") and trace.endswith("-00")
    assert await spans(running, collector) == {}


async def test_an_engine_begins_no_trace_for_a_request_that_is_not_sampled(
    traced: Trace, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    running = await traced(b" ", "--format", "stub")
    answer = await running.post({"model": NAME, "messages": MESSAGES}, CHAT)
    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-00", answer.json["told"]["trace"])
    assert await spans(running, collector) == {}


async def test_an_application_with_its_own_paths_is_traced(traced: Trace, collector: Collector) -> None:
    with ray_service(Application("1")) as url:
        running = await traced(b"", "--storage-uri", f"ray+{url}", "--format", "ray", **ALLOWED)
        answer = await running.post(b"{}", "/x", traceparent=PARENT)
        found = await spans(running, collector)
    check_parents(found, "application", answer.json["headers"]["traceparent"])
    assert attributes(found["application"])["url.path"] == "/x"
