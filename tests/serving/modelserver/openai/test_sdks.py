"""The SDKs of OpenAI and Anthropic, unchanged, against a server with the real llama.cpp."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.serving.modelserver.conftest import NAME, Running, Serve
from tests.support import small_gguf
from tests.support.wait import eventually

YES: dict[str, Any] = {"extra_body": {"grammar": 'root ::= "yes"'}}
GREEDY = {"temperature": 0}
HI: Any = [{"role": "user", "content": "hi"}]


@pytest.fixture
async def server(serve: Serve, tmp_path: Path) -> Running:
    """A server of the small model, with embeddings."""
    small_gguf.write(str(tmp_path / "small.gguf"))
    content = (tmp_path / "small.gguf").read_bytes()
    return await serve(content, "--format", "gguf", "--embeddings", "--slots", "8")


@pytest.fixture
async def client(server: Running) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"http://127.0.0.1:{server.port}/openai/v1", api_key="none", max_retries=0
    ) as made:
        yield made


async def test_chat(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model=NAME, messages=HI, **YES)
    assert answer.choices[0].message.content == "yes"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 4


async def test_a_streamed_chat_with_usage(client: openai.AsyncOpenAI) -> None:
    options: Any = {"include_usage": True}
    stream = await client.chat.completions.create(model=NAME, messages=HI, stream=True, stream_options=options, **YES)
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "yes"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 4


async def test_json_by_a_schema(client: openai.AsyncOpenAI) -> None:
    schema = {"type": "object", "properties": {"ok": {"const": True}}, "required": ["ok"]}
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "ok", "schema": schema, "strict": True}}
    answer = await client.chat.completions.create(
        model=NAME, messages=HI, response_format=wanted, temperature=0, max_tokens=60
    )
    assert json.loads(answer.choices[0].message.content or "") == {"ok": True}


async def test_log_probabilities(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model=NAME, messages=HI, logprobs=True, top_logprobs=2, **YES)
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.content


async def test_completions_responses_and_embeddings(client: openai.AsyncOpenAI) -> None:
    completed = await client.completions.create(model=NAME, prompt="hi", **YES)
    assert completed.choices[0].text == "yes"
    response = await client.responses.create(model=NAME, input="hi", max_output_tokens=4)
    assert response.usage is not None
    assert response.usage.output_tokens
    embedded = await client.embeddings.create(model=NAME, input=["a", "b"])
    assert [len(one.embedding) for one in embedded.data] == [small_gguf.WIDTH, small_gguf.WIDTH]


async def test_models(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == [NAME]
    assert (await client.models.retrieve(NAME)).id == NAME


async def test_errors_are_the_sdks_own(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="'other' is not served here"):
        await client.chat.completions.create(model="other", messages=HI)
    long: Any = [{"role": "user", "content": "a" * 1000}]
    with pytest.raises(openai.BadRequestError, match="exceed"):
        await client.chat.completions.create(model=NAME, messages=long)
    with pytest.raises(openai.BadRequestError, match="more than 1536 characters, which is the most that 256 tokens"):
        await client.completions.create(model=NAME, prompt="a" * 2000)


async def test_errors_of_the_routes_below_the_prefix_have_openais_form(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        await client.models.retrieve("other")
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError) as missing:
        await client.images.generate(model=NAME, prompt="a")
    assert missing.value.body == {
        "message": "no such path: GET / lists the paths of this server", "type": "invalid_request_error",
        "param": None, "code": None,
    }  # fmt: skip
    with pytest.raises(openai.APIStatusError, match="method GET is not allowed here: use POST") as wrong:
        await client.get("/chat/completions", cast_to=object)
    assert wrong.value.type == "invalid_request_error"


async def test_anthropics_sdk(server: Running) -> None:
    async with anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{server.port}", api_key="none") as client:
        message = await client.messages.create(model=NAME, max_tokens=8, messages=HI, extra_body=GREEDY)
        assert message.content[0].type == "text"
        assert message.usage.output_tokens == 8
        async with client.messages.stream(model=NAME, max_tokens=8, messages=HI, extra_body=GREEDY) as stream:
            assert "".join([text async for text in stream.text_stream])
            assert (await stream.get_final_message()).stop_reason == "max_tokens"
        counted = await client.messages.count_tokens(model=NAME, messages=HI)
        assert counted.input_tokens > 1
        with pytest.raises(anthropic.NotFoundError, match="'other' is not served here"):
            await client.messages.create(model="other", max_tokens=8, messages=HI)


async def test_a_stream_that_is_closed_frees_its_slot(server: Running, client: openai.AsyncOpenAI) -> None:
    words: Any = {"extra_body": {"grammar": 'root ::= "a" root'}}
    stream = await client.chat.completions.create(model=NAME, messages=HI, stream=True, **words)
    await anext(aiter(stream))
    await stream.close()

    async def free() -> bool:
        return not (await server.stats())["active"]

    await eventually(free)


async def test_sixty_four_callers_over_eight_slots_get_their_own_answers(client: openai.AsyncOpenAI) -> None:
    async def ask(number: int) -> str:
        word: Any = {"extra_body": {"grammar": f'root ::= "{number}"'}}
        stream = await client.chat.completions.create(model=NAME, messages=HI, stream=True, **word)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])

    assert await asyncio.gather(*map(ask, range(64))) == [str(number) for number in range(64)]
