"""The format vllm behind a real server: recordings of vLLM 0.32 pass byte for byte."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from serving.modelserver.openai.tokens import StreamObserver, body_usage
from tests.serving.modelserver.client import Answer, ask, request
from tests.serving.modelserver.conftest import NAME, Running, Serve
from tests.support import vllm_stub
from tests.support.small_llama import write
from tests.support.wait import eventually

CHAT = "/openai/v1/chat/completions"
Start = Callable[..., Awaitable[Running]]


@pytest.fixture
def start(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Start a server of the small Llama, whose format is found from its files."""
    vllm_stub.install(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    folder = write(tmp_path.resolve() / "llama")

    async def started(*options: str) -> Running:
        return await serve(b"", "--storage-uri", folder.as_uri(), *options)

    return started


def content(name: str) -> bytes:
    """Return the body of a recording, without its chunks."""
    head, _, rest = vllm_stub.recording(name).partition(b"\r\n\r\n")
    if b"chunked" not in head:
        return rest
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return body


def chat(wish: Any = None, **more: Any) -> dict[str, Any]:
    return {"model": NAME, "messages": [{"role": "user", "content": "hi"}], "user": json.dumps(wish or {}), **more}


async def metrics(server: Running) -> str:
    return (await ask(server.management_port, request("GET", "/metrics"))).body.decode()


async def replay(server: Running, name: str, path: str) -> Answer:
    return await server.post(chat({"replay": name}), path)


@pytest.mark.parametrize(
    ("name", "path", "prompt", "completion"),
    [
        ("chat", CHAT, 20, 3), ("chat-stream", CHAT, 20, 3), ("chat-stream-without-usage", CHAT, 0, 3),
        ("chat-logprobs", CHAT, 20, 3), ("chat-schema", CHAT, 20, 40),
        ("completions", "/v1/completions", 2, 3), ("completions-stream", "/v1/completions", 2, 3),
        ("responses", "/v1/responses", 20, 3), ("responses-stream", "/v1/responses", 20, 3),
        ("messages", "/v1/messages", 20, 3), ("messages-stream", "/v1/messages", 20, 3),
    ],
)  # fmt: skip
async def test_an_answer_passes_and_its_tokens_are_counted(
    start: Start, name: str, path: str, prompt: int, completion: int
) -> None:
    server = await start()
    answer = await replay(server, name, path)
    assert answer.status == 200
    assert answer.body == content(name)
    page = await metrics(server)
    assert f'knodel_llm_tokens_total{{revision="m-00007",kind="prompt"}} {prompt}' in page
    assert f'knodel_llm_tokens_total{{revision="m-00007",kind="completion"}} {completion}' in page


@pytest.mark.parametrize(("name", "status"), [("too-long", 400), ("unknown-model", 404), ("not-json", 400)])
async def test_an_error_of_vllm_passes_with_its_status(start: Start, name: str, status: int) -> None:
    answer = await replay(await start(), name, CHAT)
    assert (answer.status, answer.body) == (status, content(name))


async def test_tokens_are_counted_before_generation(start: Start) -> None:
    answer = await (await start()).post(chat(), "/v1/messages/count_tokens")
    assert answer.json["input_tokens"] == 20


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/rerank", "/sleep", "/wake_up", "/tokenize", "/collective_rpc"])
async def test_other_paths_of_vllm_are_not_served(start: Start, path: str) -> None:
    assert (await (await start()).post(chat(), path)).status == 404


@pytest.mark.parametrize(
    ("name", "path"), [("death-chat-stream", CHAT), ("death-messages-stream", "/v1/messages"), ("death-chat", CHAT)]
)
async def test_the_death_of_the_core_counts_as_500(start: Start, name: str, path: str) -> None:
    server = await start()
    answer = await replay(server, name, path)
    assert answer.status == (500 if name == "death-chat" else 200)
    assert b"error" in answer.body
    assert 'protocol="openai",code="500"' in await metrics(server)

    async def unready() -> bool:
        return (await server.get("/v2/health/ready")).status == 503

    await eventually(unready)


async def test_a_stream_that_vllm_breaks_off_ends_with_an_error(start: Start) -> None:
    server = await start()
    answer = await replay(server, "death-responses-stream", "/v1/responses")
    assert "broke off" in json.loads(answer.body.decode().strip().rpartition("data: ")[2])["error"]["message"]
    assert 'protocol="openai",code="500"' in await metrics(server)


async def test_requests_inside_of_vllm_are_slots_and_queue(start: Start) -> None:
    server = await start("--slots", "8")
    caller = await server.connect()
    await caller.send(request("POST", CHAT, json.dumps(chat({"endless": True})).encode()))

    async def counted() -> bool:
        stats = await server.stats()
        return (stats["active"], stats["queued"]) == (1, 1)

    await eventually(counted)
    caller.reset()


def test_usage_of_recorded_answers() -> None:
    usage = body_usage(content("responses"))
    assert usage is not None
    assert (usage.prompt, usage.completion) == (20, 3)


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize("name", ["chat-stream", "messages-stream", "completions-stream", "responses-stream"])
def test_the_first_token_is_found_however_the_stream_comes(name: str, size: int) -> None:
    observer, stream = StreamObserver(), content(name)
    for at in range(0, len(stream), size):
        observer.feed(stream[at : at + size], float(at))
    assert observer.first is not None
    assert not observer.failed
