"""A real language model, SmolLM2-135M-Instruct, through the model server: sentences, JSON, embeddings, sleep."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from examples.quickstart_llm import model_file
from tests.support.ports import free_ports
from tests.support.wait import eventually

NAME = "smol"
ASLEEP = 100 << 20
"""Bytes that the process of the engine may have while it sleeps; 258 MiB awake."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a server whose engine sleeps after two seconds."""
    data, management = free_ports(2)
    argv = [
        sys.executable, "-m", "serving.modelserver", "--name", NAME, "--storage-uri", Path(model_file()).as_uri(),
        "--slots", "4", "--context-length", "1024", "--embeddings", "--engine-arg", "sleep-idle-seconds=2",
    ]  # fmt: skip
    environ = {**os.environ, "PORT": str(data), "MANAGEMENT_PORT": str(management)}
    with subprocess.Popen(argv, env=environ) as process:
        try:
            yield data
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def client(port: int) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/openai/v1", api_key="none", max_retries=30) as made:
        yield made


def ask(client: openai.OpenAI, text: str, **more: Any) -> str:
    messages: Any = [{"role": "user", "content": text}]
    answer = client.chat.completions.create(model=NAME, messages=messages, temperature=0, max_tokens=60, **more)
    return answer.choices[0].message.content or ""


def capital(client: openai.OpenAI) -> str:
    completed = client.completions.create(
        model=NAME, prompt="The capital of France is", temperature=0, max_tokens=2
    )  # fmt: skip
    return completed.choices[0].text


def test_it_knows_a_capital(client: openai.OpenAI) -> None:
    assert capital(client) == " Paris."


def test_an_answer_by_a_schema(client: openai.OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "inhabitants": {"type": "integer"}},
        "required": ["city", "inhabitants"],
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "city", "schema": schema}}
    found = json.loads(ask(client, "Describe Paris as JSON.", response_format=wanted))
    assert isinstance(found["city"], str)
    assert isinstance(found["inhabitants"], int)


def test_embeddings_of_like_texts_are_alike(client: openai.OpenAI) -> None:
    texts = ["The cat sleeps on the sofa.", "A cat is sleeping on a couch.", "Interest rates rose by two percent."]
    first, like, other = (one.embedding for one in client.embeddings.create(model=NAME, input=texts).data)
    assert len(first) == 576

    def cosine(a: list[float], b: list[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True))

    assert cosine(first, like) > cosine(first, other)


async def test_it_sleeps_when_idle_and_wakes(client: openai.OpenAI) -> None:
    ask(client, "Hi")
    pid = engine_pid()
    assert resident(pid) > ASLEEP
    await eventually(lambda: resident(pid) < ASLEEP)
    assert capital(client) == " Paris."


def engine_pid() -> int:
    """The process of the engine, which is the only one of its program below this one."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"serving.engines.gguf.main" in line and b'"name":"smol"' in line:
                return int(entry.name)
    raise AssertionError("the engine does not run")


def resident(pid: int) -> int:
    """Bytes of memory that the process alone has (PSS)."""
    rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("Pss:")) * 1024
