"""Streamed responses, as a browser or a Triton client reads them."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from textwrap import dedent
from typing import Any

import aiohttp
import pytest
from starlette.types import Message, Receive, Scope, Send

from serving.engines.base.engine import EngineOptions
from serving.engines.base.errors import Cancelled
from serving.engines.python.engine import load
from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.codec.content_router import prefers_stream
from serving.modelserver.execution.stream_queue import StreamQueue
from serving.modelserver.observe.metrics import RequestMetrics
from serving.modelserver.observe.middleware import ObservabilityMiddleware
from serving.modelserver.observe.response_stats import ResponseStats
from serving.storage.fetch import fetch
from tests.serving.modelserver.client import Caller, ask, request
from tests.serving.modelserver.streaming import (
    FAILS_AFTER,
    NAME,
    REVISION,
    Counting,
    Streaming,
    counting_server,
    serving,
)
from tests.support.wait import eventually

STREAM = f"/v2/models/{NAME}/generate_stream"
PREDICT = f"/v1/models/{NAME}:predict"
ENDLESS = 1 << 40
WORDS = """
    import numpy as np

    class Model:
        inputs = [{"name": "text_input", "datatype": "BYTES", "shape": [1]}]
        outputs = [{"name": "text_output", "datatype": "BYTES", "shape": [1]}]

        def predict(self, text_input):
            words = text_input[0].split()
            while words[0] == "for":
                yield np.array(["ever"], dtype=object)
            for word in words:
                yield np.array([word], dtype=object)
    """


async def events(
    server: Streaming[Any], path: str, body: Any, **headers: str
) -> tuple[aiohttp.ClientResponse, list[Any]]:
    """Return the head of the response, and the data of its events."""
    url = f"http://127.0.0.1:{server.port}{path}"
    async with aiohttp.ClientSession(headers=headers) as session, session.post(url, json=body) as answer:
        text = (await answer.read()).decode()
    blocks = [block for block in text.split("\n\n") if block]
    assert all(block.startswith("data: ") and "\n" not in block for block in blocks)
    return answer, [json.loads(block.removeprefix("data: ")) for block in blocks]


async def test_each_part_is_an_event() -> None:
    async with counting_server() as server:
        answer, parts = await events(server, STREAM, {"n": 3})
    assert (answer.status, answer.content_type, answer.charset) == (200, "text/event-stream", "utf-8")
    assert answer.headers["cache-control"] == "no-cache"
    assert parts == [{"model_name": NAME, "model_version": REVISION, "y": number} for number in range(3)]


async def test_a_stream_may_have_no_part() -> None:
    async with counting_server() as server:
        answer, parts = await events(server, STREAM, {"n": 0})
    assert (answer.status, answer.content_type, parts) == (200, "text/event-stream", [])


@pytest.mark.parametrize(
    ("accepted", "streams"),
    [
        (b"text/event-stream", True),
        (b"TEXT/EVENT-STREAM ; Q=0.5", True),
        (b"application/json, text/event-stream", True),
        (b"text/event-stream;q=0", False),
        (b"text/event-stream; q=0.000, */*", False),
        (b"application/json, text/event-stream;q=0.9", False),
        (b"application/json;q=0.1, text/event-stream;q=0.9", True),
        (b"text/event-stream;q=2", True),
        (b"text/event-streams", False),
        (b",;,text/event-stream;;", True),
    ],
)
def test_a_stream_is_for_who_prefers_it_to_json(accepted: bytes, streams: bool) -> None:
    assert prefers_stream(accepted) is streams


async def test_a_caller_that_refuses_a_stream_gets_json() -> None:
    async with counting_server() as server:
        refusing = request("POST", PREDICT, b'{"instances": [2]}', accept="text/event-stream;q=0")
        assert (await ask(server.port, refusing)).headers["content-type"] == "application/json"


async def test_a_prediction_streams_to_a_caller_that_accepts_a_stream() -> None:
    async with counting_server() as server:
        _, parts = await events(server, PREDICT, {"instances": [2]}, accept="text/event-stream")
        assert parts == [{"predictions": [0]}, {"predictions": [1]}]
        plain = await ask(server.port, request("POST", PREDICT, b'{"instances": [2]}', accept="*/*"))
        assert plain.json == {"predictions": [1]}


async def test_a_python_model_that_yields_is_streamed(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(dedent(WORDS))
    engine = load(fetch(tmp_path.as_uri(), "", tmp_path, frozenset()), EngineOptions(allow_code=True))
    async with serving(engine) as server:
        _, parts = await events(server, STREAM, {"text_input": "bit by bit"})
        assert [part["text_output"] for part in parts] == ["bit", "by", "bit"]
        left = await Caller.connect(server.port)
        await left.send(request("POST", STREAM, b'{"text_input": "for ever"}'))
        await left.answer()
        left.reset()
        await eventually(lambda: server.stats.active == 0)
        _, parts = await events(server, STREAM, {"text_input": "free again"})
        assert [part["text_output"] for part in parts] == ["free", "again"]
    engine.close()


async def test_generate_answers_at_once() -> None:
    async with counting_server() as server:
        answer = await ask(server.port, request("POST", f"/v2/models/{NAME}/generate", b'{"n": 5}'))
    assert answer.json == {"model_name": NAME, "model_version": REVISION, "y": 4}


async def test_the_first_part_comes_before_the_last_is_made() -> None:
    async with counting_server() as server:
        caller = await Caller.connect(server.port)
        await caller.send(request("POST", STREAM, json.dumps({"n": ENDLESS}).encode()))
        head = await caller.answer()
        assert head.status == 200 and head.headers["transfer-encoding"] == "chunked"
        caller.close()
        await eventually(lambda: server.engine.ended)


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_caller_that_leaves_ends_the_stream_and_frees_its_slot(how: str) -> None:
    async with counting_server(slots=1) as server:
        caller = await Caller.connect(server.port)
        await caller.send(request("POST", STREAM, json.dumps({"n": ENDLESS}).encode()))
        await caller.answer()
        assert server.stats.active == 1
        getattr(caller, how)()
        await eventually(lambda: server.engine.ended == 1 and server.stats.active == 0)
        assert server.budget.lent == 0
        assert (await events(server, STREAM, {"n": 1}))[1][0]["y"] == 0


async def test_a_caller_that_does_not_read_stops_the_model_and_not_the_memory() -> None:
    async with counting_server(slots=1, width=20_000) as server:
        caller = await Caller.connect(server.port)
        await caller.send(request("POST", STREAM, json.dumps({"n": ENDLESS}).encode()))
        await eventually(lambda: _stands_still(server))
        assert server.engine.made < 1000  # 40 kB each; sockets hold a few MB
        caller.reset()
        await eventually(lambda: server.engine.ended)


@pytest.mark.parametrize("parts", [ENDLESS, 100])
async def test_a_caller_that_never_reads_the_rest_is_cut_off_and_keeps_no_server_from_ending(parts: int) -> None:
    async with counting_server(timeout=0.2, width=20_000, limits=ServerLimits(response_check=0.1)) as server:
        caller = await Caller.connect(server.port)
        await caller.send(request("POST", STREAM, json.dumps({"n": parts}).encode()))
        await eventually(lambda: server.engine.ended)
        await eventually(lambda: server.stats.active == 0)  # the end of the context waits for all requests
    caller.close()


async def _stands_still(server: Streaming[Counting]) -> bool:
    before = server.engine.made
    await asyncio.sleep(0.05)
    return before == server.engine.made > 0


@pytest.mark.parametrize(
    "body",
    [{"n": -1}, {"n": 1.5}, {"n": [1, 2]}, {"n": None}, {}, {"m": 1}, [], {"n": 1, "parameters": 2},
     {"n": 1, "parameters": []}, {"n": 1, "parameters": False}, {"n": 1, "parameters": {"n": 1}}],
)  # fmt: skip
async def test_what_is_wrong_before_the_first_part_has_a_status(body: Any) -> None:
    async with counting_server() as server:
        answer = await ask(server.port, request("POST", STREAM, json.dumps(body).encode()))
        assert answer.status == 400 and answer.headers["content-type"] == "application/json" and answer.error
        assert (server.stats.active, server.budget.lent) == (0, 0)


async def test_what_goes_wrong_later_is_the_last_event_without_the_models_words() -> None:
    async with counting_server() as server:
        answer, parts = await events(server, STREAM, {"n": FAILS_AFTER})
    assert answer.status == 200
    assert [part["y"] for part in parts[:-1]] == list(range(FAILS_AFTER))
    assert "error " in parts[-1]["error"] and "unlucky" not in parts[-1]["error"]


@pytest.mark.parametrize(
    ("path", "body"), [(STREAM, {"n": FAILS_AFTER}), (PREDICT, {"instances": [FAILS_AFTER]}), (STREAM, {"n": ENDLESS})]
)
async def test_a_stream_that_breaks_after_its_first_event_counts_as_an_error(path: str, body: Any) -> None:
    async with counting_server(timeout=0.1) as server:
        answer, parts = await events(server, path, body, accept="text/event-stream")
        assert answer.status == 200 and len(parts) > 1
        await events(server, path, {"instances": [2]} if path == PREDICT else {"n": 2}, accept="text/event-stream")
        page = ResponseStats(server.metrics, server.stats).to_json()
    assert (page["requests"], page["errors"], sum(page["latency"].values())) == (2, 1, 1)


async def test_an_answer_whose_application_raises_after_its_status_has_left_counts_as_an_error() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise OSError("of the application")

    async def nowhere(_: Message) -> None: ...

    metrics = RequestMetrics()
    scope = {"type": "http", "method": "POST", "path": STREAM, "headers": []}
    with pytest.raises(OSError, match="of the application"):
        await ObservabilityMiddleware(app, metrics, None, time.monotonic)(scope, asyncio.Queue[Message]().get, nowhere)
    assert list(metrics.durations["v2"]) == [500]


async def test_a_caller_that_leaves_a_stream_is_no_error() -> None:
    async with counting_server() as server:
        caller = await Caller.connect(server.port)
        await caller.send(request("POST", STREAM, json.dumps({"n": ENDLESS}).encode()))
        await caller.answer()
        caller.reset()
        await eventually(lambda: "v2" in server.metrics.durations)
        assert ResponseStats(server.metrics, server.stats).to_json()["errors"] == 0


async def test_a_deadline_ends_a_stream_with_an_event() -> None:
    async with counting_server(timeout=0.1) as server:
        _, parts = await events(server, STREAM, {"n": ENDLESS})
        assert [part["y"] for part in parts[:-1]] == list(range(len(parts) - 1)) and len(parts) > 1
        assert parts[-1] == {"error": "no answer within 0.1 s"}


async def test_parameters_that_name_no_input_are_left_out() -> None:
    async with counting_server() as server:
        _, parts = await events(server, STREAM, {"parameters": {"temperature": 0, "n": 1}})
    assert [part["y"] for part in parts] == [0]


async def test_a_stream_takes_a_slot_and_a_place_in_the_queue() -> None:
    async with counting_server(slots=1, queue=0) as server:
        caller = await Caller.connect(server.port)
        await caller.send(request("POST", STREAM, json.dumps({"n": ENDLESS}).encode()))
        await caller.answer()
        refused = await ask(server.port, request("POST", STREAM, b'{"n": 1}'))
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        caller.close()
        await eventually(lambda: server.stats.active == 0)


async def test_a_thread_makes_no_more_than_a_few_parts_ahead() -> None:
    queue: StreamQueue[int] = StreamQueue(asyncio.get_running_loop(), most_waiting=2)
    made: list[int] = []

    def make() -> None:
        for number in range(5):
            queue.put(number)
            made.append(number)

    thread = threading.Thread(target=make)
    thread.start()
    await eventually(lambda: len(made) == 2)
    assert await anext(queue) == 0
    await eventually(lambda: len(made) == 3)
    assert [await anext(queue) for _ in range(4)] == [1, 2, 3, 4]
    thread.join(5)
    queue.close()
    assert [part async for part in queue] == []


async def test_a_thread_that_waits_for_room_is_told_of_the_end() -> None:
    queue: StreamQueue[int] = StreamQueue(asyncio.get_running_loop(), most_waiting=1)
    refused: list[int] = []

    def make() -> None:
        queue.put(0)
        for attempt in range(2):
            try:
                queue.put(1)
            except Cancelled:
                refused.append(attempt)

    thread = threading.Thread(target=make)
    thread.start()
    queue.close()
    await eventually(lambda: refused == [0, 1])
    thread.join(5)
