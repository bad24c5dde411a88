"""Chats of both clients with a server of OpenAI's protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import knodel
from serving.client.effects import HttpAnswer
from serving.client.inference.chat import completion_from
from tests.support.chat_server import MODEL, ChatServer, chat_server

LIMIT = 30.0  # s


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as running:
        yield running


@pytest.fixture
def client(server: ChatServer) -> Iterator[knodel.Client]:
    with knodel.Client(server.url, api_key="k") as made:
        yield made


def test_an_answer_has_its_text_usage_and_the_whole_object(client: knodel.Client, server: ChatServer) -> None:
    answer = client.chat(MODEL, "good morning", max_tokens=9, temperature=None)

    assert answer.text == str(answer) == "You said: goodmorning"
    assert (answer.model, answer.finish_reason, answer.usage["completion_tokens"]) == (MODEL, "stop", 3)
    assert answer.raw["object"] == "chat.completion"
    assert server.requests == [
        {"model": MODEL, "messages": [{"role": "user", "content": "good morning"}], "max_tokens": 9}
    ]
    assert server.paths == [f"/namespaces/default/models/{MODEL}/openai/v1/chat/completions"]
    assert server.heads[0]["Authorization"] == "Bearer k"


def test_messages_of_the_protocol_and_an_adapter_are_sent(client: knodel.Client, server: ChatServer) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    assert client.chat(MODEL, messages, adapter="legal", tag="blue", stop=["\n"]).text == "You said: hi"
    assert server.requests == [{"model": "llm:legal", "messages": messages, "stop": ["\n"]}]
    assert server.paths[0].startswith(f"/namespaces/default/models/{MODEL}@blue/")


def test_a_stream_has_the_texts_as_they_come(client: knodel.Client, server: ChatServer) -> None:
    assert list(client.chat(MODEL, "a b", stream=True)) == ["You said: ", "a", "b"]
    assert (server.requests[0]["stream"], server.requests[0]["stream_options"]) == (True, {"include_usage": True})


async def test_the_asynchronous_client_has_the_same(server: ChatServer) -> None:
    async with knodel.AsyncClient(server.url) as client:
        assert (await client.chat(MODEL, "a b")).text == "You said: ab"
        assert [text async for text in client.chat(MODEL, "a b", stream=True)] == ["You said: ", "a", "b"]
        with pytest.raises(knodel.Unreachable, match="broke off"):
            assert not [text async for text in client.chat(MODEL, "break", stream=True)]


def test_a_stream_that_is_left_ends_the_answer(client: knodel.Client, server: ChatServer) -> None:
    for text in client.chat(MODEL, "endless", stream=True):
        if text == "word ":
            break
    assert server.left.wait(LIMIT)


async def test_an_asynchronous_stream_that_is_left_ends_the_answer(server: ChatServer) -> None:
    async with knodel.AsyncClient(server.url) as client:
        async for text in client.chat(MODEL, "endless", stream=True):
            if text == "word ":
                break
        assert await asyncio.to_thread(server.left.wait, LIMIT)


def test_a_stream_that_breaks_off_is_an_error_after_its_texts(client: knodel.Client) -> None:
    texts = client.chat(MODEL, "break", stream=True)
    assert next(texts) == "You said: "
    with pytest.raises(knodel.Unreachable, match=r"the answer of model llm broke off \(.*\): send the message again"):
        next(texts)


def test_an_error_in_a_stream_is_the_error_of_the_model(client: knodel.Client) -> None:
    with pytest.raises(knodel.ModelError, match=r"broke off \(the device is lost\)") as failed:
        list(client.chat(MODEL, "fail", stream=True))
    assert failed.value.status == 500


def test_a_busy_server_is_asked_again(client: knodel.Client, server: ChatServer) -> None:
    assert list(client.chat(MODEL, "busy", stream=True)) == ["You said: ", "busy"]
    assert len(server.requests) == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("message", "adapter", "status", "text"), [
    ("long", "", 400, "responded with 400: 9000 tokens are more than 8192: send a shorter conversation"),
    ("hi", "nope", 404, "responded with 404: no model llm:nope: `knodel get llm -o yaml` shows its adapters; give one"),
    ("ill", "", 500, "responded with 500: out of memory: `knodel logs llm` shows the cause"),
])  # fmt: skip
def test_an_error_has_its_remedy(
    client: knodel.Client, message: str, adapter: str, status: int, text: str, stream: bool
) -> None:
    with pytest.raises(knodel.KnodelError) as failed:
        if stream:
            list(client.chat(MODEL, message, adapter=adapter, stream=True))
        else:
            client.chat(MODEL, message, adapter=adapter)
    assert text in str(failed.value)
    assert getattr(failed.value, "status", None) == status


@pytest.mark.parametrize("messages", [[], {}, 7, [{"content": "x"}], ["x"]])
def test_what_is_no_message_is_refused(client: knodel.Client, server: ChatServer, messages: object) -> None:
    with pytest.raises(knodel.Invalid, match="messages are neither a text nor a list"):
        client.chat(MODEL, messages)  # type: ignore[call-overload]
    assert server.requests == []


def test_parameters_are_json_and_not_those_of_the_request_itself(client: knodel.Client) -> None:
    with pytest.raises(knodel.Invalid, match="model is not a parameter of a chat"):
        client.chat(MODEL, "x", model="y")
    for bad in (float("nan"), object(), "\ud800"):
        with pytest.raises(knodel.Invalid, match="the chat is not JSON"):
            client.chat(MODEL, "x", stop=bad, stream=True)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"choices": []}', b'{"choices": [7]}', b"\xff"])
def test_a_response_that_is_no_completion_is_reported(content: bytes) -> None:
    with pytest.raises(knodel.KnodelError, match="the response of model m is not a chat completion"):
        completion_from("m", HttpAnswer(200, "OK", {}, content))
