"""The payload log: events that a collector receives, and failures of the collector, which do not affect requests."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterator, Sequence
from urllib.parse import unquote

import pytest
from starlette.types import Message, Receive, Scope, Send

from serving.modelserver.base.errors import BadOptions
from serving.modelserver.base.observability_options import PayloadOptions, PayloadSink, parse_sink
from serving.modelserver.base.options import parse_options
from serving.modelserver.observe.payload_event import (
    MAX_ID_LENGTH,
    REQUEST,
    RESPONSE,
    Origin,
    PayloadEvent,
    payload_event,
    request_id,
)
from serving.modelserver.observe.payload_log import PayloadLog
from serving.modelserver.observe.payload_sender import MAX_BYTES, MAX_EVENTS, PayloadSender
from tests.serving.modelserver.client import ask, request, tensor
from tests.serving.modelserver.collector import Collector, Post, collecting
from tests.serving.modelserver.conftest import Running, Serve
from tests.support import models
from tests.support.wait import eventually
from tests.testbed.waiting import becomes

SENT_WITHIN = 5.0  # s, of a thread's work
EVENT = PayloadEvent({"ce-id": "1"}, (b"abc", b"def"), 6)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


async def logging(serve: Serve, collector: Collector, *options: str) -> Running:
    return await serve(models.double(), "--payload-log", f"{collector.url}/log?model=m", *options)


async def arrived(collector: Collector, count: int) -> list[Post]:
    await eventually(lambda: len(collector.posts) >= count)
    return collector.posts


async def test_a_request_and_its_answer_are_events_of_one_id(serve: Serve, collector: Collector) -> None:
    running = await logging(serve, collector)
    body = b'{"inputs": [{"name":"x", "datatype": "FP32", "shape": [1], "data": [2.5]}]}'
    answer = await running.post(body, x_request_id="from the caller", content_type="application/json")
    asked, answered = await arrived(collector, 2)
    assert (asked.body, answered.body) == (body, answer.body)
    assert [post.headers["ce-type"] for post in (asked, answered)] == [REQUEST, RESPONSE]
    for post in (asked, answered):
        assert post.path == "/log?model=m"
        assert post.headers["content-type"] == "application/json"
        about = {name: unquote(value) for name, value in post.headers.items() if name.startswith("ce-")}
        assert about.pop("ce-time").endswith("+00:00")
        del about["ce-type"]
        assert about == {
            "ce-specversion": "1.0", "ce-id": "from the caller", "ce-source": "/models/m",
            "ce-inferenceservicename": "m", "ce-component": "predictor", "ce-knodelrevision": "m-00007",
        }  # fmt: skip


async def test_binary_tensors_are_logged_with_the_header_that_divides_them(serve: Serve, collector: Collector) -> None:
    running = await logging(serve, collector)
    message = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}}]}'
    body = message + struct.pack("<f", 1.0)
    headers = {"inference_header_content_length": str(len(message)), "content_type": "application/octet-stream"}
    assert (await running.post(body, **headers)).status == 200
    asked, answered = await arrived(collector, 2)
    assert asked.body == body
    assert asked.headers["inference-header-content-length"] == str(len(message))
    assert (asked.headers["content-type"], answered.headers["content-type"]) == (
        "application/octet-stream", "application/json",
    )  # fmt: skip


async def test_of_a_refused_request_there_is_no_answer_in_the_log(serve: Serve, collector: Collector) -> None:
    running = await logging(serve, collector)
    assert (await running.infer(tensor(["no number"]))).status == 400
    assert (await running.infer(tensor([1.0]))).status == 200
    assert [post.headers["ce-type"] for post in await arrived(collector, 3)] == [REQUEST, REQUEST, RESPONSE]


@pytest.mark.parametrize(("mode", "type"), [("request", REQUEST), ("response", RESPONSE)])
async def test_one_half_may_be_enough(serve: Serve, collector: Collector, mode: str, type: str) -> None:
    running = await logging(serve, collector, "--payload-log-mode", mode)
    for _ in range(2):
        await running.infer(tensor([1.0]))
    await running.server.close()
    assert [post.headers["ce-type"] for post in collector.posts] == [type, type]


async def test_questions_about_the_model_are_not_logged_and_counts_are_told(serve: Serve, collector: Collector) -> None:
    running = await logging(serve, collector)
    await running.get("/v2/models/m")
    await running.infer(tensor([1.0]))
    await arrived(collector, 2)

    async def told() -> bool:
        page = (await ask(running.management_port, request("GET", "/metrics"))).body.decode()
        return 'knodel_payload_events_total{revision="m-00007",result="sent"} 2\n' in page

    await eventually(told)
    assert len(collector.posts) == 2


async def test_a_collector_that_hangs_delays_no_answer(serve: Serve, collector: Collector) -> None:
    collector.hold()
    running = await logging(serve, collector)
    async with asyncio.timeout(5):
        answers = [await running.infer(tensor([float(n)])) for n in range(20)]
    assert [answer.json["outputs"][0]["data"] for answer in answers] == [[2.0 * n] for n in range(20)]
    assert collector.posts == []
    collector.release()
    await arrived(collector, 40)


async def test_of_a_share_the_others_pass_untouched() -> None:
    drawn = iter([0.2, 0.7, 0.4, 0.5])
    sender = PayloadSender(PayloadSink("http", "127.0.0.1", 9, "/"))
    log = PayloadLog(PayloadOptions(PayloadSink("http", "127.0.0.1", 9, "/"), share=0.5), sender, lambda: next(drawn))
    given: list[Receive] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        given.append(receive)

    async def receive() -> Message:
        return {}

    async def send(_: Message) -> None:
        pass

    for _ in range(4):
        await log.wrap(app, "m", "m-00001")(
            {"method": "POST", "path": "/v2/models/m/infer", "headers": []}, receive, send
        )
    assert [one is receive for one in given] == [False, True, False, True]


def sending(collector: Collector) -> PayloadSender:
    return PayloadSender(parse_sink(collector.url + "/"))


def test_what_does_not_fit_into_the_queue_is_dropped_and_the_rest_arrives_in_order(collector: Collector) -> None:
    sender = sending(collector)
    collector.hold()
    for number in range(MAX_EVENTS + 10):
        sender.offer(PayloadEvent({"ce-id": str(number)}, (b"x",), 1))
        if number == 0:
            assert collector.reached.wait(5)  # on its way, so that it is not in the queue
    assert sender.counts.dropped == 9
    collector.release()
    sender.close(timeout=20)
    assert [post.headers["ce-id"] for post in collector.posts] == [str(number) for number in range(MAX_EVENTS + 1)]
    assert (sender.counts.sent, sender.counts.failed) == (MAX_EVENTS + 1, 0)


def test_what_waits_never_takes_more_memory_than_is_allowed(collector: Collector) -> None:
    sender = sending(collector)
    collector.hold()
    half = PayloadEvent({}, (bytes(MAX_BYTES // 2),), MAX_BYTES // 2)
    for _ in range(3):
        sender.offer(half)
    assert sender.counts.dropped == 1
    collector.release()
    sender.close(timeout=20)
    assert sender.counts.sent == 2


def test_a_connection_that_the_collector_ends_costs_no_event(collector: Collector) -> None:
    collector.keep = False
    sender = sending(collector)
    for number in range(3):
        sender.offer(EVENT)
        assert becomes(lambda: sender.counts.sent == number + 1, SENT_WITHIN)  # noqa: B023 - asked in this turn
    sender.close(timeout=5)
    assert [post.body for post in collector.posts] == [b"abcdef"] * 3


def test_what_the_collector_refuses_is_counted_and_logged_once(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.status = 503
    sender = sending(collector)
    for _ in range(5):
        sender.offer(EVENT)
    sender.close(timeout=5)
    assert sender.counts.failed == 5
    assert [record.getMessage().count("503") for record in caplog.records] == [1]


def test_a_collector_that_is_not_there_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    sender = PayloadSender(parse_sink("http://127.0.0.1:9/"))
    sender.offer(EVENT)
    sender.close(timeout=5)
    assert (sender.counts.failed, "refused" in caplog.text) == (1, True)


def test_an_end_does_not_wait_for_ever(collector: Collector, caplog: pytest.LogCaptureFixture) -> None:
    collector.hold()
    sender = sending(collector)
    for _ in range(3):
        sender.offer(EVENT)
    assert collector.reached.wait(5)
    start = time.monotonic()
    sender.close(timeout=0.05)
    assert time.monotonic() - start < 1
    assert "2 events" in caplog.text
    sender.offer(EVENT)
    assert sender.counts.dropped == 1


async def test_an_event_is_one_for_the_cloudevents_sdk() -> None:
    from cloudevents.core.bindings.http import HTTPMessage, from_http_event

    event = payload_event(
        REQUEST, 'a "b" 100% ü', "2026-01-02T03:04:05.678+00:00", Origin("m", "m-00001", "shop"),
        [(b"content-type", b"application/json"), (b"authorization", b"secret")], [b'{"a":', b"1}"],
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )  # fmt: skip
    assert "secret" not in str(event.headers)
    read = from_http_event(HTTPMessage(event.headers, b"".join(event.body)))
    assert (read.get_id(), read.get_type(), read.get_source()) == ('a "b" 100% ü', REQUEST, "/namespaces/shop/models/m")
    assert read.get_extension("namespace") == "shop"
    assert read.get_extension("traceparent") == "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert read.get_data() == {"a": 1}


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ([(b"ce-id", b"a%20b")], "a b"),
        ([(b"x-request-id", b"a%20b")], "a%20b"),
        ([(b"x-request-id", b"one"), (b"ce-id", b"two")], "two"),
        ([(b"ce-id", b""), (b"x-request-id", b"one")], "one"),
    ],
)
def test_a_request_is_called_what_its_caller_calls_it(headers: list[tuple[bytes, bytes]], name: str) -> None:
    assert request_id(headers) == name


@pytest.mark.parametrize("headers", [[], [(b"ce-id", b"x" * (MAX_ID_LENGTH + 1))]])
def test_a_request_without_a_name_of_use_gets_one(headers: Sequence[tuple[bytes, bytes]]) -> None:
    names = {request_id(list(headers)) for _ in range(2)}
    assert len(names) == 2 and all(len(name) == 36 for name in names)


def test_no_attribute_breaks_out_of_its_header() -> None:
    event = payload_event(REQUEST, "a\r\nx-evil: 1", "", Origin("m", "", ""), [], [])
    assert event.headers["ce-id"] == "a%0D%0Ax-evil:%201"


@pytest.mark.parametrize("url", ["ftp://host/", "host:80", "http://", "http://host:x/", "http://[::1/", "http://h/a b"])
def test_a_url_of_no_use_is_refused_at_the_start(url: str) -> None:
    with pytest.raises(BadOptions, match="--payload-log"):
        parse_options(["--name", "m", "--storage-uri", "file:///m.onnx", "--payload-log", url], {})


def test_it_is_off_unless_asked_for_and_knows_its_namespace() -> None:
    plain = ["--name", "m", "--storage-uri", "file:///m.onnx"]
    assert parse_options(plain, {}).observability.payload_log is None
    given = parse_options([*plain, "--payload-log", "https://log.svc"], {"POD_NAMESPACE": "shop"})
    assert given.observability.payload_log == PayloadOptions(
        PayloadSink("https", "log.svc", None, "/"), 1.0, "all", "shop"
    )
