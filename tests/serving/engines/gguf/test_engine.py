"""The real llama.cpp over a small model with random weights, whose answers a grammar makes exact."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.engines.base.engine import Adapter, EngineOptions, LlmOptions
from serving.engines.base.errors import InferenceFailed, InputRefused, LoadFailed
from serving.engines.gguf.engine import load
from serving.engines.upstream import client
from serving.engines.upstream.client import Address, Reply
from serving.engines.upstream.engine import UpstreamEngine
from serving.storage.base.artifact import Artifact
from tests.support import small_gguf
from tests.support.wait import eventually

YES = 'root ::= "yes"'
OPTIONS = EngineOptions(name="m", slots=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("gguf")
    small_gguf.write(str(made / "small.gguf"))
    return made


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[UpstreamEngine]:
    made = load(Artifact(folder, None), OPTIONS._replace(llm=LlmOptions(embeddings=True)))
    yield made
    made.close()


def ask(engine: UpstreamEngine, path: str, body: dict[str, Any], key: str | None = None) -> Reply:
    address = engine.state.address
    assert address is not None
    used = address if key is None else Address(address.socket, key)
    return client.request(used, "POST", path, json.dumps({"model": "m", **body}).encode())


ENDLESS = {"type": "string", "pattern": "^(((a{0,1000}){0,1000}){0,1000})$"}
"""A schema whose grammar llama.cpp does not finish in hours."""
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "grammar": YES}


def test_an_exact_answer(engine: UpstreamEngine) -> None:
    answer = json.loads(ask(engine, "/v1/chat/completions", CHAT).body)
    assert answer["choices"][0]["message"]["content"] == "yes"
    assert answer["usage"]["completion_tokens"] == 4


def test_it_tells_the_tokens_of_completions_and_streams_and_its_metrics(engine: UpstreamEngine) -> None:
    inputs = {"text_input": np.array(["hello"], dtype=object), "max_tokens": np.array([8])}
    before = engine.tokens.total
    engine.infer(inputs, ["text_output"])
    once = engine.tokens.total
    assert once.completion - before.completion in range(1, 9)
    assert once.prompt - before.prompt >= len("hello")  # a token is a byte
    list(engine.stream(inputs, ["text_output"]))
    assert engine.tokens.total.prompt - once.prompt == once.prompt - before.prompt
    assert b"llamacpp:prompt_tokens_total" in engine.page("/metrics")


def test_another_key_is_refused(engine: UpstreamEngine) -> None:
    assert ask(engine, "/v1/chat/completions", CHAT, key="wrong").status == 401


def test_every_path_of_the_program_answers(engine: UpstreamEngine) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": CHAT,
        "/v1/completions": {"prompt": "hi", "max_tokens": 2},
        "/v1/responses": {"input": "hi", "max_output_tokens": 2},
        "/v1/messages": {**CHAT, "max_tokens": 2},
        "/v1/messages/count_tokens": CHAT,
        "/v1/embeddings": {"input": ["a", "b"]},
    }
    assert bodies.keys() == engine.program.paths
    for path, body in bodies.items():
        assert ask(engine, path, body).status == 200, path


def test_texts_of_one_request_have_the_embeddings_that_each_has_alone(engine: UpstreamEngine) -> None:
    """llama.cpp would pool only a part of the longer ones, computed side by side in caches of their own."""
    texts = ["a", "a longer text of some more tokens", "b and c", "one more"]

    def embeddings(*given: str) -> list[Any]:
        return [one["embedding"] for one in json.loads(ask(engine, "/v1/embeddings", {"input": given}).body)["data"]]

    together = embeddings(*texts)
    for text, found in zip(texts, together, strict=True):
        assert found == pytest.approx(embeddings(text)[0], abs=1e-3)


def test_a_prompt_that_is_too_long_is_the_callers_fault(engine: UpstreamEngine) -> None:
    long = {"messages": [{"role": "user", "content": "a" * 1000}]}
    answer = ask(engine, "/v1/chat/completions", long)
    assert answer.status == 400
    assert b"exceed" in answer.body
    with pytest.raises(InputRefused, match="exceed"):
        engine.infer({"text_input": np.array(["a" * 1000], dtype=object)}, ["text_output"])


def test_a_single_file_is_served(folder: Path) -> None:
    content = (folder / "small.gguf").read_bytes()
    engine = load(Artifact(Path("any-name"), content), OPTIONS)
    try:
        assert engine.signature.platform == "gguf_llamacpp"
        assert engine.slots == 2
    finally:
        engine.close()


def test_the_slots_are_four_when_none_are_wanted(folder: Path) -> None:
    engine = load(Artifact(folder, None), OPTIONS._replace(slots=0))
    try:
        assert engine.slots == 4
    finally:
        engine.close()


async def test_an_idle_engine_sleeps_and_wakes_for_a_request(folder: Path) -> None:
    engine = load(Artifact(folder, None), OPTIONS._replace(llm=LlmOptions(engine_args=(("sleep-idle-seconds", "1"),))))
    try:
        await eventually(lambda: b'"is_sleeping":true' in engine.page("/props").replace(b" ", b""))
        assert ask(engine, "/v1/chat/completions", CHAT).status == 200
    finally:
        engine.close()


async def test_an_engine_that_is_killed_is_started_again(folder: Path) -> None:
    engine = load(Artifact(folder, None), OPTIONS)
    try:
        first = engine.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: engine.pid not in (None, first) and engine.state.reason == "")
        assert ask(engine, "/v1/chat/completions", CHAT).status == 200
    finally:
        engine.close()


def test_a_model_that_does_not_fit_is_refused_before_it_starts(folder: Path) -> None:
    with pytest.raises(LoadFailed, match=r"small.gguf needs .*, and the replica has"):
        load(Artifact(folder, None), OPTIONS._replace(memory=1 << 20))


@pytest.mark.parametrize(
    ("llm", "words"),
    [
        (LlmOptions(engine_args=(("lora", "x"),)), "'lora', which gguf does not take: use sleep-idle-seconds"),
        (LlmOptions(engine_args=(("batch-size", "-1"),)), "batch-size is '-1': set a whole number"),
        (LlmOptions(context_length=1000), "trained for 256"),
    ],
)
def test_wrong_options_are_named(folder: Path, llm: LlmOptions, words: str) -> None:
    with pytest.raises(LoadFailed, match=words):
        load(Artifact(folder, None), OPTIONS._replace(llm=llm))


def test_what_is_no_adapter_is_refused(folder: Path) -> None:
    llm = LlmOptions(adapters=(Adapter("legal", str(folder)),))
    with pytest.raises(LoadFailed, match="'legal' is not a LoRA adapter"):
        load(Artifact(folder, None), OPTIONS._replace(llm=llm))


def test_adapters_change_the_answers(folder: Path, tmp_path: Path) -> None:
    small_gguf.write_adapter(str(tmp_path / "a.gguf"))
    llm = LlmOptions(adapters=(Adapter("legal", str(tmp_path)),))
    engine = load(Artifact(folder, None), OPTIONS._replace(llm=llm))
    try:

        def text(adapter: str) -> str:
            body = {"prompt": "hello", "max_tokens": 12, "temperature": 0, "model": "m"}
            changed = engine.program.change_body(body, adapter)
            assert changed is not None
            return str(json.loads(ask(engine, "/v1/completions", changed).body)["choices"][0]["text"])

        plain, legal = text(""), text("legal")
        assert plain != legal
        assert (text(""), text("legal")) == (plain, legal)
    finally:
        engine.close()


def test_a_split_file_is_loaded_from_its_first_part(tmp_path: Path) -> None:
    small_gguf.write(str(tmp_path / "small.gguf"), tensors_of_part=5)
    assert len(list(tmp_path.iterdir())) == 3
    engine = load(Artifact(tmp_path, None), OPTIONS)
    try:
        answer = json.loads(ask(engine, "/v1/chat/completions", CHAT).body)
        assert answer["choices"][0]["message"]["content"] == "yes"
    finally:
        engine.close()


async def test_an_engine_that_computes_nothing_any_more_is_started_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.engines.upstream.engine.SILENT", 0.5)
    monkeypatch.setattr("serving.engines.upstream.engine.PROBE_TIMEOUT", 0.2)
    engine = load(Artifact(folder, None), OPTIONS._replace(timeout=1.0))
    try:
        first, address = engine.pid, engine.enter()
        assert address is not None
        endless = json.dumps({**CHAT, "model": "m", "grammar": None, "json_schema": ENDLESS}).encode()
        with pytest.raises(InferenceFailed, match="timed out"):
            client.request(address, "POST", "/v1/chat/completions", endless, timeout=1.0)
        engine.leave()  # the request is given up, and the engine is still at it
        assert client.request(address, "GET", "/health").status == 200
        await eventually(lambda: engine.pid not in (None, first) and engine.state.reason == "", timeout=15)
        assert ask(engine, "/v1/chat/completions", CHAT).status == 200
    finally:
        engine.close()


def test_one_part_of_a_split_file_is_refused(tmp_path: Path) -> None:
    small_gguf.write(str(tmp_path / "small.gguf"), tensors_of_part=5)
    content = (tmp_path / "small-00001-of-00003.gguf").read_bytes()
    with pytest.raises(LoadFailed, match=r"model.gguf is part 0 .from 0. of 3.*name a folder with all parts"):
        load(Artifact(Path("any-name"), content), OPTIONS)
    (tmp_path / "small-00002-of-00003.gguf").write_bytes((tmp_path / "small-00003-of-00003.gguf").read_bytes())
    with pytest.raises(LoadFailed, match=r"small-00002-of-00003.gguf is part 2 .from 0. of 3, and part 1 of 3"):
        load(Artifact(tmp_path, None), OPTIONS)


def test_a_model_of_embeddings_has_no_other_path(tmp_path: Path) -> None:
    small_gguf.write_encoder(str(tmp_path / "m.gguf"))
    engine = load(Artifact(tmp_path, None), OPTIONS)
    try:
        assert engine.program.paths == {"/v1/embeddings"}
        long = "a b c " * 250  # more than llama.cpp's own batch
        answer = json.loads(ask(engine, "/v1/embeddings", {"input": [long, "a"]}).body)
        assert answer["usage"]["prompt_tokens"] > 512
        assert len(answer["data"][0]["embedding"]) == small_gguf.WIDTH
    finally:
        engine.close()


def test_a_request_for_a_long_look_back_takes_no_memory(engine: UpstreamEngine) -> None:
    """llama.cpp allocates as many tokens as the caller asks for: 2.4 GB here."""
    body = {"prompt": "a", "max_tokens": 1, "model": "m", "dry_penalty_last_n": 300_000_000, "dry_multiplier": 1}
    changed = engine.program.change_body(body, "")
    assert changed is not None
    assert ask(engine, "/v1/completions", changed).status == 200
    status = Path(f"/proc/{engine.pid}/status").read_text()
    assert int(status.split("VmHWM:")[1].split()[0]) < 200 << 10  # KiB


def test_a_file_that_llama_cpp_refuses_ends_in_its_own_words(tmp_path: Path) -> None:
    small_gguf.write(str(tmp_path / "m.gguf"))
    content = (tmp_path / "m.gguf").read_bytes()
    (tmp_path / "m.gguf").write_bytes(content.replace(b"blk.0.attn_q.weight", b"blk.0.attn_x.weight"))
    with pytest.raises(LoadFailed, match=r"ended before it was ready.*tensor 'blk.0.attn_q.weight' not found"):
        load(Artifact(tmp_path, None), OPTIONS)


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}


@pytest.mark.parametrize(
    "wrong",
    [
        {"tools": 3}, {"messages": [{"role": 3, "content": "x"}]}, {"reasoning_format": "x"},
        {"messages": [{"role": "user", "content": [IMAGE]}]},
    ],
)  # fmt: skip
def test_a_500_of_a_wrong_request_is_known(engine: UpstreamEngine, wrong: dict[str, Any]) -> None:
    answer = ask(engine, "/v1/chat/completions", {**CHAT, **wrong})
    message = json.loads(answer.body)["error"]["message"]
    assert answer.status == 500
    assert any(part in message for part in engine.program.refusals)
