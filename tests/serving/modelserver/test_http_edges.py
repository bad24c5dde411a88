"""Edge cases of the protocols, as clients of other servers send them."""

from __future__ import annotations

import json
from time import monotonic
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from serving.modelserver.base.limits import BodyBudget, ServerLimits
from serving.modelserver.base.stats import Stats
from serving.modelserver.connections.listener import AsgiListener
from serving.modelserver.connections.sockets import bind
from serving.modelserver.endpoints.app import make_app
from serving.modelserver.endpoints.pending_requests import PendingRequests
from serving.modelserver.observe.metrics import RequestMetrics
from serving.modelserver.observe.middleware import ObservabilityMiddleware
from tests.serving.modelserver.client import HOST, Caller, ask, request, tensor
from tests.serving.modelserver.conftest import NAME, Running
from tests.serving.modelserver.streaming import NAME as COUNTER
from tests.serving.modelserver.streaming import counting_server
from tests.support.wait import eventually

INFER = f"/v2/models/{NAME}/infer"
GENERATE = f"/v2/models/{NAME}/generate"
PREDICT = f"/v1/models/{NAME}:predict"
STREAM = "text/event-stream"


@pytest.mark.parametrize("path", [f"{INFER}/", "/v2/health/live/", f"/v2/models/{NAME}/", f"{PREDICT}/"])
async def test_a_slash_too_many_is_another_path_and_no_redirect(double: Running, path: str) -> None:
    method = "GET" if path.startswith("/v2/h") else "POST"
    answer = await ask(double.port, request(method, path, b"{}" if method == "POST" else b""))
    assert (answer.status, "location" in answer.headers) == (404, False)
    assert answer.error


async def test_a_byte_that_is_no_ascii_in_a_query_is_answered(double: Running) -> None:
    answer = await ask(double.port, b"GET /v2/health/live/?\xff HTTP/1.1\r\nHost: m\r\n\r\n")
    assert answer.status in (400, 404) and answer.error


async def test_optional_members_may_be_null(double: Running) -> None:
    answer = await double.infer({**tensor([1.0]), "parameters": None}, id=None, outputs=None, parameters=None)
    assert answer.status == 200 and "id" not in answer.json


async def test_who_sends_a_form_learns_how_to_send_json(double: Running) -> None:
    answer = await double.post(b'{"x": 1}', GENERATE, content_type="application/x-www-form-urlencoded")
    assert answer.status == 415 and "-H 'Content-Type: application/json'" in answer.error
    other = await double.post(b"<x/>", GENERATE, content_type="application/xml")
    assert other.status == 415 and "curl" not in other.error


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"x": 1, "stream": False, "max_tokens": 5, "stop": None}, 200),
        ({"parameters": {"x": 1, "temperature": 0.1, "bad_words": ["a"]}}, 200),
        ({"x": 1, "stop": ["a"]}, 400),
        ({"x": 1, "classification": 2}, 400),
        ({"x": 1, "parameters": {"classification": 2}}, 400),
        ({"x": 1, "parameters": {"x": 1}}, 400),
        ({"x": 1, "parameters": []}, 400),
        ({"z": 1}, 400),
    ],
)
async def test_what_names_no_input_of_a_generate_request_is_a_parameter(
    double: Running, body: dict[str, object], status: int
) -> None:
    assert (await double.post(body, GENERATE)).status == status


@pytest.mark.parametrize(
    ("path", "body", "parts"),
    [
        ("/v2/models/m/infer", {"inputs": [tensor([2], "INT64", name="n")]}, 2),
        ("/v2/models/m/generate", {"n": 3}, 3),
        ("/v1/models/m:predict", {"instances": [2]}, 2),
    ],
)
async def test_every_inference_streams_to_who_accepts_a_stream(path: str, body: dict[str, object], parts: int) -> None:
    async with counting_server() as server:
        caller = await Caller.connect(server.port)
        content = json.dumps(body).encode()
        await caller.send(request("POST", path, content, accept=STREAM, connection="close"))
        sent = await caller.ended()
        caller.close()
        plain = await ask(server.port, request("POST", path, content, accept="*/*"))
    assert b"content-type: text/event-stream" in sent and sent.count(b"data: ") == parts
    assert plain.headers["content-type"] == "application/json"


async def test_a_stream_of_events_has_no_binary_tensors() -> None:
    async with counting_server() as server:
        body = {"inputs": [tensor([2], "INT64", name="n")], "parameters": {"binary_data_output": True}}
        path = f"/v2/models/{COUNTER}/infer"
        answer = await ask(server.port, request("POST", path, json.dumps(body).encode(), accept=STREAM))
    assert answer.status == 400 and "binary" in answer.error


async def test_to_http_1_0_a_stream_ends_with_its_connection() -> None:
    async with counting_server() as server:
        caller = await Caller.connect(server.port)
        head = f"POST /v2/models/{COUNTER}/generate_stream HTTP/1.0\r\nContent-Length: 8\r\n\r\n"
        await caller.send(head.encode() + b'{"n": 2}')
        answered, _, body = (await caller.ended()).partition(b"\r\n\r\n")
        caller.close()
    assert b"transfer-encoding" not in answered and b"connection: close" in answered
    assert [json.loads(part.removeprefix(b"data: "))["y"] for part in body.split(b"\n\n") if part] == [0, 1]


async def test_what_is_refused_while_its_body_comes_counts_as_what_it_was_answered() -> None:
    metrics = RequestMetrics()
    budget = BodyBudget(1 << 20)

    async def nothing(*_: object) -> None:
        """Fail: the test does not check health."""

    hold = PendingRequests(nothing, Stats(monotonic), budget, limit=1, timeout=0.05)
    listener = AsgiListener(
        ObservabilityMiddleware(hold, metrics, None, monotonic), bind(HOST, 0, "PORT"), ServerLimits(linger=0.01)
    )
    await listener.start()
    caller = await Caller.connect(listener.port)
    await caller.send(request("POST", INFER, content_length="100") + b"{")
    assert (await caller.answer()).status == 503

    def codes() -> list[str]:
        counted: Any = metrics.families("r")[0]
        return [labels["code"] for labels, _ in counted.samples]

    await eventually(codes)
    assert codes() == ["503"]
    caller.close()
    await listener.close()


async def broken(scope: Scope, receive: Receive, send: Send) -> None:
    raise ZeroDivisionError("a secret path")


async def broken_too(_: Request) -> Response:
    raise ZeroDivisionError("a secret path")


@pytest.mark.bad_input("infer-leaks")
@pytest.mark.parametrize("app", [broken, make_app([Route("/v2", broken_too)])], ids=["an application", "a route"])
async def test_what_goes_wrong_in_the_server_itself_is_an_error_in_json(
    app: ASGIApp, caplog: pytest.LogCaptureFixture
) -> None:
    listener = AsgiListener(app, bind(HOST, 0, "PORT"), ServerLimits())
    await listener.start()
    answer = await ask(listener.port, request("GET", "/v2"))
    assert (answer.status, answer.headers["content-type"]) == (500, "application/json")
    assert "log" in answer.error and "secret" not in answer.error
    assert "ZeroDivisionError" in caplog.text
    assert (await ask(listener.port, request("GET", "/v2"))).status == 500
    await listener.close()
