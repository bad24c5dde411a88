"""OpenAI's paths through a real server, over the stub of an engine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import openapi_spec_validator
import pytest

from autoscaler.metrics.stat import parse_stats
from serving.engines.base import registry
from serving.modelserver.openai.paths import PREFIX
from serving.modelserver.openai.upstreams import upstream_of
from tests.serving.modelserver.client import ask, request
from tests.serving.modelserver.collector import collecting
from tests.serving.modelserver.conftest import NAME, Running, Serve
from tests.serving.modelserver.models.conftest import ServeMany, folder, serve_many
from tests.support.wait import eventually

__all__ = ["folder", "serve_many"]

CHAT = "/openai/v1/chat/completions"
Start = Callable[..., Awaitable[Running]]


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the format of the stub."""
    made = registry.ModelFormat("stub", "tests.support.engine_stub.engine", "json", "server", (".stub",))
    monkeypatch.setitem(registry.FORMATS, "stub", made)


@pytest.fixture
def start(serve: Serve, stub: None) -> Start:
    """Start a server over the stub, with the named adapters."""

    async def started(*options: str, adapters: str = " ") -> Running:
        return await serve(adapters.encode(), "--format", "stub", *options)

    return started


def chat(model: str = NAME, stream: bool = False, wish: Any = None, **more: Any) -> dict[str, Any]:
    asked = {"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": stream, **more}
    return asked if wish is None else {**asked, "user": json.dumps(wish)}


async def page(server: Running, path: str = "/metrics") -> str:
    return (await ask(server.management_port, request("GET", path))).body.decode()


async def idle(server: Running) -> None:
    async def is_idle() -> bool:
        return not (await server.stats())["active"]

    await eventually(is_idle)


async def test_an_answer_passes_byte_for_byte(start: Start) -> None:
    server = await start()
    answer = await server.post(chat(max_tokens=2), CHAT, **{"x-request-id": "one"})
    assert answer.status == 200
    assert answer.json["choices"][0]["message"]["content"] == "w0 w1 "
    assert answer.json["told"] == {"model": NAME, "adapter": None, "accept": None, "id": "one", "trace": None}
    assert (await server.post(chat(max_tokens=2), "/v1/chat/completions")).body == (
        await server.post(chat(max_tokens=2), CHAT)
    ).body


async def test_a_stream_passes_and_is_counted(start: Start) -> None:
    server = await start()
    answer = await server.post(chat(stream=True, max_tokens=3), CHAT)
    assert answer.headers["content-type"] == "text/event-stream"
    assert "server" not in answer.headers
    events = answer.body.decode().split("\n\n")
    assert [json.loads(event[6:])["choices"][0]["delta"]["content"] for event in events[1:4]] == ["w0 ", "w1 ", "w2 "]
    assert events[-2] == "data: [DONE]"
    metrics = await page(server)
    assert 'knodel_llm_tokens_total{revision="m-00007",kind="prompt"} 7' in metrics
    assert 'knodel_llm_tokens_total{revision="m-00007",kind="completion"} 3' in metrics
    assert 'knodel_llm_first_token_seconds_count{revision="m-00007"} 1' in metrics
    assert 'protocol="openai",code="200"' in metrics


@pytest.mark.parametrize("stream", [False, True])
async def test_the_statistics_have_the_tokens_of_all_protocols(start: Start, stream: bool) -> None:
    server = await start()
    assert (await server.stats())["tokens"] == {"prompt": 0, "completion": 0}
    await server.post(chat(stream=stream, max_tokens=3), CHAT)
    assert (await server.stats())["tokens"] == {"prompt": 7, "completion": 3}
    asked = {"text_input": "hi", "max_tokens": 5}
    answer = await server.post(asked, f"/v2/models/{NAME}/generate{'_stream' if stream else ''}")
    assert answer.status == 200
    assert (await server.stats())["tokens"] == {"prompt": 14, "completion": 8}
    assert parse_stats((await page(server, "/stats")).encode(), 0.0).tokens == (14, 8)  # as the autoscaler reads it
    assert 'knodel_llm_tokens_total{revision="m-00007",kind="completion"} 8' in await page(server)


async def test_a_caller_that_leaves_a_stream_has_used_the_tokens_so_far(start: Start) -> None:
    server = await start()
    caller = await server.connect()
    await caller.send(request("POST", CHAT, json.dumps(chat(stream=True, wish={"endless": True})).encode()))
    await caller.received(b'"w3 "')
    caller.reset()
    await idle(server)
    tokens = (await server.stats())["tokens"]
    assert tokens["prompt"] == 0  # the engine tells it at the end
    assert tokens["completion"] >= 4


async def test_tokens_of_one_of_many_models_outlive_its_reload(serve_many: ServeMany, stub: None, folder: Path) -> None:
    (folder / "chat.stub").write_text(" ")
    running = await serve_many()
    assert running.server.stats.to_json()["tokens"] == {"prompt": 0, "completion": 0}
    asked = {"text_input": "hi", "max_tokens": 5}
    assert (await running.post(asked, "/v2/models/chat/generate")).status == 200
    assert (await running.manage("/models/chat/unload")).status == 200
    assert (await running.manage("/models/chat/load")).status == 200
    assert (await running.post(asked, "/v2/models/chat/generate")).status == 200
    stats = await running.stats()
    assert stats["tokens"] == stats["models"]["chat"]["tokens"] == {"prompt": 14, "completion": 10}
    assert "tokens" not in stats["models"]["double"]
    assert 'knodel_llm_tokens_total{model="chat",revision="chat-00002",kind="prompt"} 14' in await page(running)
    assert (await ask(running.management_port, request("GET", "/metrics/engine"))).status == 404


@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
async def test_each_answer_of_a_request_takes_a_slot(path: str, start: Start) -> None:
    server = await start("--slots", "3")
    caller = await server.connect()
    body = json.dumps(chat(stream=True, n=2, wish={"endless": True})).encode()
    await caller.send(request("POST", path, body))

    async def active() -> bool:
        return bool((await server.stats())["active"] == 2)

    await eventually(active)
    assert (await server.post(chat(max_tokens=1), path)).status == 200
    other = asyncio.create_task(server.post(chat(max_tokens=1, n=2), path))

    async def waits() -> bool:
        return bool((await server.stats())["queued"] == 2)

    await eventually(waits)
    caller.reset()
    assert (await other).status == 200
    await idle(server)


@pytest.mark.parametrize(("n", "status"), [(2, 200), (3, 400), (1 << 70, 400), (True, 200), (None, 200), ("3", 200)])
async def test_more_answers_than_slots_are_refused(n: Any, status: int, start: Start) -> None:
    server = await start("--slots", "2")
    answer = await server.post(chat(max_tokens=1, n=n), CHAT)
    assert answer.status == status
    if status != 200:
        error = answer.json["error"]
        assert (error["type"], error["param"]) == ("invalid_request_error", "n")
        assert "the model computes 2 answers at once: send at most 2" in error["message"]


async def test_other_models_have_no_tokens(double: Running) -> None:
    assert "tokens" not in await double.stats()
    assert "knodel_llm" not in await page(double)


@pytest.mark.parametrize("name", ["other", f"{NAME}:", f"{NAME}:unknown", ""])
async def test_an_unknown_model_is_404(start: Start, name: str) -> None:
    server = await start(adapters="legal")
    answer = await server.post(chat(name), CHAT)
    assert answer.status == 404
    assert answer.json["error"]["code"] == "model_not_found"
    assert answer.json["error"]["param"] == "model"
    assert f"use {NAME}, {NAME}:legal" in answer.json["error"]["message"]


async def test_the_engine_changes_bodies_without_adapters_too(start: Start) -> None:
    server = await start()
    answer = await server.post(chat(adapter="stolen"), CHAT)
    assert answer.json["told"]["adapter"] == ""


async def test_an_adapter_is_asked_for_by_the_models_name(start: Start) -> None:
    server = await start(adapters="legal medical")
    answer = await server.post(chat(f"{NAME}:medical"), CHAT)
    assert answer.json["told"]["adapter"] == "medical"
    assert (await server.post(chat(), CHAT)).json["told"]["adapter"] is None
    listed = await server.get(f"{PREFIX}/v1/models")
    assert [one["id"] for one in listed.json["data"]] == [NAME, f"{NAME}:legal", f"{NAME}:medical"]
    assert (await server.get(f"{PREFIX}/v1/models/{NAME}:legal")).json["object"] == "model"
    assert (await server.get(f"{PREFIX}/v1/models/other")).status == 404


@pytest.mark.parametrize(
    ("body", "words"),
    [(b"", "valid request"), (b"[]", "valid request"), (b'{"model": 3}', "model"), (b"{}", "model is missing")],
)
async def test_a_wrong_body_is_400_in_openais_form(start: Start, body: bytes, words: str) -> None:
    server = await start()
    answer = await server.post(body, CHAT)
    assert answer.status == 400
    assert answer.json["error"]["type"] == "invalid_request_error"
    assert words in answer.json["error"]["message"]


async def test_errors_of_messages_have_anthropics_form(start: Start) -> None:
    server = await start()
    answer = await server.post(chat("other"), "/v1/messages")
    assert answer.status == 404
    assert answer.json["type"] == "error"
    assert answer.json["error"]["type"] == "not_found_error"


async def test_an_error_of_the_engine_passes_with_its_status(start: Start) -> None:
    server = await start()
    answer = await server.post(chat(wish={"status": 400}), CHAT)
    assert (answer.status, answer.json["error"]["message"]) == (400, "as asked")


async def test_an_error_of_the_engine_has_the_form_of_the_api(start: Start) -> None:
    server = await start()
    answer = await server.post(chat(wish={"status": 400}), "/v1/messages")
    error = {"type": "invalid_request_error", "message": "as asked"}
    assert (answer.status, answer.json) == (400, {"type": "error", "error": error})


@pytest.mark.parametrize(("message", "status"), [("the request is at fault: no", 400), ("the core died", 500)])
async def test_a_500_for_which_the_caller_is_at_fault_is_400(start: Start, message: str, status: int) -> None:
    server = await start()
    answer = await server.post(chat(wish={"status": 500, "message": message}), CHAT)
    assert (answer.status, answer.json["error"]["message"]) == (status, message)
    assert f'protocol="openai",code="{status}"}} 1' in await page(server)


async def test_headers_that_engines_refuse_are_not_passed_on(start: Start) -> None:
    server = await start()
    answer = await server.post(chat(max_tokens=1), CHAT, **{"x-request-id": "x" * 9000, "accept": "a"})
    assert (answer.json["told"]["id"], answer.json["told"]["accept"]) == (None, None)


async def test_a_path_that_the_engine_lacks_is_404(start: Start) -> None:
    server = await start()
    assert (await server.post(chat(), "/v1/embeddings")).status == 404
    assert (await server.get(CHAT)).status == 405
    for hidden in ("/state", "/wake", "/health/x", "/openai/state", "/openai/v1/../state"):
        assert (await server.post(chat(), hidden)).status == 404


async def test_a_model_that_is_no_language_model_has_no_such_paths(double: Running) -> None:
    for path in (CHAT, "/v1/completions"):
        assert (await double.post(chat(), path)).status == 404
    assert (await double.get(f"{PREFIX}/v1/models")).json == {"object": "list", "data": []}


async def test_a_caller_that_leaves_ends_the_request_in_the_engine(start: Start) -> None:
    server = await start("--slots", "1")
    caller = await server.connect()
    await caller.send(request("POST", CHAT, json.dumps(chat(stream=True, wish={"endless": True})).encode()))

    async def runs() -> bool:
        return bool((await server.stats())["active"])

    await eventually(runs)
    caller.reset()
    await idle(server)
    answer = await server.post(chat(), CHAT)
    assert answer.status == 200


async def test_a_stream_in_http_1_0_ends_with_its_connection(start: Start) -> None:
    server = await start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    body = json.dumps(chat(stream=True, max_tokens=3)).encode()
    writer.write(request("POST", CHAT, body).replace(b"HTTP/1.1", b"HTTP/1.0"))
    head, _, events = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert b"transfer-encoding" not in head
    assert [event[:5] for event in events.split(b"\n\n")[:-1]] == [b"data:"] * 6


async def test_the_payload_log_has_the_whole_stream(start: Start) -> None:
    with collecting() as collector:
        server = await start("--payload-log", collector.url, "--payload-log-mode", "response")
        answer = await server.post(chat(stream=True, max_tokens=5, wish={"pause": 0.01}), CHAT)
        await eventually(lambda: len(collector.posts) == 1)
        assert collector.posts[0].body == answer.body


async def test_more_requests_at_once_than_the_engine_accepts_connections_wait_for_it(start: Start) -> None:
    server = await start("--slots", "12")
    engine = upstream_of(server.server._models.lifecycle.model().engine)
    assert engine is not None
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGSTOP)
    answers = [asyncio.create_task(server.post(chat(), CHAT)) for _ in range(12)]

    async def connecting() -> bool:
        return bool((await server.stats())["active"] == 12)

    await eventually(connecting)
    os.kill(engine.pid, signal.SIGCONT)
    assert {(await answer).status for answer in answers} == {200}


async def test_a_full_queue_is_429_with_retry_after(start: Start) -> None:
    server = await start("--slots", "1", "--queue", "1")
    callers = [await server.connect() for _ in range(2)]
    for caller in callers:
        await caller.send(request("POST", CHAT, json.dumps(chat(stream=True, wish={"endless": True})).encode()))

    async def full() -> bool:
        stats = await server.stats()
        return (stats["active"], stats["queued"]) == (1, 1)

    await eventually(full)
    answer = await server.post(chat(), CHAT)
    assert answer.status == 429
    assert answer.headers["retry-after"] == "1"
    assert answer.json["error"]["type"] == "rate_limit_error"
    for caller in callers:
        caller.reset()
    await idle(server)


async def test_the_deadline_ends_a_stream_with_an_error(start: Start) -> None:
    server = await start("--timeout", "1")
    answer = await server.post(chat(stream=True, wish={"endless": True}), CHAT)
    last = answer.body.decode().strip().rpartition("data: ")[2]
    assert "no complete answer within 1 s" in json.loads(last)["error"]["message"]
    assert 'code="504"' in await page(server)
    await idle(server)


async def test_an_error_event_of_the_engine_counts_as_500(start: Start) -> None:
    server = await start()
    answer = await server.post(chat(stream=True, wish={"error": 2}), CHAT)
    assert b"the core died" in answer.body
    assert 'protocol="openai",code="500"' in await page(server)


@pytest.mark.parametrize("stream", [False, True])
async def test_the_death_of_the_engine_is_an_error_and_not_the_end(start: Start, stream: bool) -> None:
    server = await start()
    answer = await server.post(chat(stream=stream, wish={"die": 1}), CHAT)
    if stream:
        assert json.loads(answer.body.decode().strip().rpartition("data: ")[2])["error"]["type"] == "server_error"
    else:
        assert answer.status == 500
        assert "broke off" in answer.json["error"]["message"]

    async def serves_again() -> bool:
        return (await server.post(chat(), CHAT)).status == 200

    await eventually(serves_again, timeout=15)


async def test_the_engines_own_metrics_are_passed_on(start: Start) -> None:
    server = await start()
    missing = await ask(server.management_port, request("GET", "/metrics/engine"))
    assert (missing.status, "no metrics page of its own" in missing.json["error"]) == (404, True)
    text = "# TYPE stub_requests gauge\nstub_requests 0\n"
    await server.post(chat(wish={"set": {"metrics": text}}), CHAT)
    asked = (ask(server.management_port, request("GET", "/metrics/engine")) for _ in range(8))
    for answer in await asyncio.gather(*asked):
        assert (answer.status, answer.body.decode()) == (200, text)
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert (await server.get("/metrics/engine")).status == 404  # on the data port


async def test_other_models_have_no_metrics_of_an_engine(double: Running) -> None:
    answer = await ask(double.management_port, request("GET", "/metrics/engine"))
    assert answer.status == 404


async def test_a_dead_engine_is_503_and_the_server_is_not_ready(start: Start) -> None:
    server = await start()
    model = server.server._models.lifecycle.model()
    engine = upstream_of(model.engine)
    assert engine is not None
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGKILL)

    async def unready() -> bool:
        return (await server.get("/v2/health/ready")).status == 503

    await eventually(unready)
    answer = await server.post(chat(), CHAT)
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    metrics = await ask(server.management_port, request("GET", "/metrics/engine"))
    assert (metrics.status, "is started again" in metrics.json["error"]) == (503, True)


async def test_a_sleeping_engine_is_woken_before_it_gets_a_request(start: Start) -> None:
    server = await start()
    await server.post(chat(wish={"set": {"sleeping": True}}), CHAT)
    engine = upstream_of(server.server._models.lifecycle.model().engine)
    assert engine is not None

    async def sleeps() -> bool:
        return engine.state.load.sleeping

    await eventually(sleeps)
    assert (await server.post(chat(), CHAT)).status == 200
    state = json.loads(await asyncio.to_thread(engine.page, "/state"))
    assert (state["asleep"], state["sleeping"]) == (0, False)


async def test_the_deadline_and_the_callers_end_the_wait_for_an_engine_that_wakes(start: Start) -> None:
    server = await start("--timeout", "1", "--slots", "40")
    await server.post(chat(wish={"set": {"sleeping": True, "wakes": 3600.0}}), CHAT)
    engine = upstream_of(server.server._models.lifecycle.model().engine)
    assert engine is not None

    async def sleeps() -> bool:
        return engine.state.load.sleeping

    await eventually(sleeps)
    answers = await asyncio.wait_for(asyncio.gather(*(server.post(chat(), CHAT) for _ in range(40))), 10)
    assert {answer.status for answer in answers} == {504}
    await idle(server)
    assert await asyncio.wait_for(asyncio.to_thread(engine.page, "/state"), 10)  # a thread is free


async def test_no_request_is_sent_to_an_engine_that_falls_asleep(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = registry.ModelFormat("stub", "tests.support.engine_stub.resting", "json", "server", (".stub",))
    monkeypatch.setitem(registry.FORMATS, "stub", stub)
    monkeypatch.setattr("serving.engines.upstream.engine.READ_PERIOD", 0.001)
    server = await serve(b" ", "--format", "stub", "--slots", "4")

    async def call(number: int) -> None:
        for _ in range(20):
            assert (await server.post(chat(stream=number % 2 == 0), CHAT)).status == 200

    await asyncio.gather(*map(call, range(3)))
    engine = upstream_of(server.server._models.lifecycle.model().engine)
    assert engine is not None

    async def slept() -> bool:
        return bool(json.loads(await asyncio.to_thread(engine.page, "/state"))["sleeps"] > 3)

    while not await slept():
        assert (await server.post(chat(), CHAT)).status == 200
    assert json.loads(await asyncio.to_thread(engine.page, "/state"))["asleep"] == 0


async def test_the_kv_cache_counts_as_slots(start: Start) -> None:
    server = await start("--slots", "4")
    caller = await server.connect()
    wish = {"endless": True, "set": {"share": 0.75, "waiting": 1}}
    await caller.send(request("POST", CHAT, json.dumps(chat(stream=True, wish=wish)).encode()))

    async def counted() -> bool:
        stats = await server.stats()
        return (stats["slots"], stats["active"], stats["queued"]) == (4, 3, 1)

    await eventually(counted)
    metrics = await page(server)
    caller.reset()
    assert 'knodel_llm_kv_share{revision="m-00007"} 0.75' in metrics


async def test_each_of_many_callers_gets_its_own_answer(start: Start) -> None:
    server = await start("--slots", "8")
    answers = await asyncio.gather(*(server.post(chat(stream=True, max_tokens=n), CHAT) for n in range(1, 65)))
    for number, answer in enumerate(answers, 1):
        assert answer.body.count(b'"w') == 2 * number, answer.body


async def test_the_open_inference_protocol_works_over_it(start: Start) -> None:
    server = await start()
    generated = await server.post({"text_input": "hi", "parameters": {"max_tokens": 2}}, f"/v2/models/{NAME}/generate")
    assert generated.json["text_output"] == "w0 w1 "
    streamed = await server.post({"text_input": "hi", "max_tokens": 2}, f"/v2/models/{NAME}/generate_stream")
    assert streamed.body.count(b"text_output") == 2
    text = {"name": "text_input", "shape": [1], "datatype": "BYTES", "data": ["hi"]}
    assert (await server.infer(text)).json["outputs"][0]["data"][0].startswith("w0 w1 ")


async def test_a_large_prompt_passes(start: Start) -> None:
    server = await start()
    answer = await server.post(chat(messages=[{"role": "user", "content": "x" * 10_000_000}]), CHAT)
    assert answer.status == 200


async def test_the_root_lists_the_paths(start: Start) -> None:
    server = await start()
    assert (await server.get("/")).json["paths"]["chat/completions"] == CHAT
    document = (await server.get("/openapi.json")).json
    openapi_spec_validator.validate(document)
    assert CHAT in document["paths"]
