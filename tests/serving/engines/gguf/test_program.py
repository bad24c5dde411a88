"""llama.cpp's program: its command, its options, the bodies that it is given."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serving.engines.base.errors import InputRefused, LoadFailed
from serving.engines.base.folder import ModelFolder
from serving.engines.gguf.program import KEY, GgufProgram, LlamaSettings, options_of
from serving.storage.base.artifact import Artifact

SETTINGS = LlamaSettings(
    model="m.gguf", socket="", name="m", slots=2, context=512, batch=512, threads=1, prompt_cache_mib=1,
    embeddings=False, mean=False, most_text=1000, adapters=(), options={},
)  # fmt: skip


def program(folder: Path, *adapters: str) -> GgufProgram:
    return GgufProgram(SETTINGS, adapters, ModelFolder(Artifact(folder, None), in_place=True))


def test_the_command_has_the_socket_and_not_the_key(tmp_path: Path) -> None:
    argv, environ = program(tmp_path).command(Path("/run/s.sock"), "secret")
    assert argv[:4] == [sys.executable, "-P", "-m", "serving.engines.gguf.main"]
    assert msgspec.json.decode(argv[4], type=LlamaSettings) == msgspec.structs.replace(SETTINGS, socket="/run/s.sock")
    assert not any("secret" in word for word in argv)
    assert environ == {KEY: "secret"}


def test_a_body_without_adapters_is_sent_unchanged(tmp_path: Path) -> None:
    assert program(tmp_path).change_body({"model": "m", "messages": [], "lora": 1}, "") is None


@pytest.mark.parametrize(("adapter", "scales"), [("", [0.0, 0.0]), ("a", [1.0, 0.0]), ("b", [0.0, 1.0])])
def test_only_the_adapter_of_the_request_counts(tmp_path: Path, adapter: str, scales: list[float]) -> None:
    body = {"model": "m", "lora": [{"id": 0, "scale": 9}], "cache_prompt": True}
    assert program(tmp_path, "a", "b").change_body(body, adapter) == {
        "model": "m",
        "lora": [{"id": number, "scale": scale} for number, scale in enumerate(scales)],
        "cache_prompt": False,
    }


@pytest.mark.parametrize("name", ["repeat_last_n", "dry_penalty_last_n"])
@pytest.mark.parametrize(
    ("value", "sent"), [(2**31 - 1, 512), (3e8, 512), (float("inf"), 512), (64, 64), (-1, -1), ("9", "9"), (None, None)]
)
def test_penalties_consider_at_most_the_context(tmp_path: Path, name: str, value: Any, sent: Any) -> None:
    assert program(tmp_path).change_body({"model": "m", name: value}, "") == {"model": "m", name: sent}


def test_callers_do_not_choose_slots(tmp_path: Path) -> None:
    assert program(tmp_path).change_body({"model": "m", "id_slot": 1}, "") == {"model": "m"}


LONG = "a" * 501
HALF = [{"role": "user", "content": [{"type": "text", "text": LONG}]}]


@pytest.mark.parametrize(
    "prompt",
    [
        {"messages": HALF * 2},
        {"messages": HALF, "system": LONG},
        {"messages": [{"role": "user"}] * 201},
        {"prompt": 2 * LONG},
        {"prompt": ["a", 2 * LONG]},
        {"prompt": [7] * 1001},
        {"prompt": [[7] * 1001]},
        {"input": HALF * 2},
        {"input": "a", "instructions": 2 * LONG},
    ],
)
def test_a_prompt_that_cannot_fit_is_refused(tmp_path: Path, prompt: Any) -> None:
    with pytest.raises(InputRefused, match="more than 1000 characters, which is the most that 512 tokens"):
        program(tmp_path).change_body({"model": "m", **prompt}, "")


@pytest.mark.parametrize("name", ["prompt", "input"])
def test_a_request_has_at_most_2048_prompts(tmp_path: Path, name: str) -> None:
    assert program(tmp_path).change_body({"model": "m", name: ["a"] * 2048}, "") is None
    with pytest.raises(InputRefused, match="has 2049 prompts: send at most 2048"):
        program(tmp_path).change_body({"model": "m", name: ["a"] * 2049}, "")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"top_logprobs": 21}, "top_logprobs is 21: ask for at most 20"),
        ({"logprobs": 1e9}, "logprobs is 1000000000.0: ask"),
        ({"n_probs": 10**30}, "n_probs is 1000"),
        ({"logit_bias": {str(number): 1 for number in range(1025)}}, "logit_bias has 1025 entries: send at most 1024"),
        ({"logit_bias": [[1, 1]] * 1025}, "logit_bias has 1025"),
    ],
)
def test_what_takes_long_for_each_answer_is_refused(tmp_path: Path, body: Any, message: str) -> None:
    with pytest.raises(InputRefused, match=message):
        program(tmp_path).change_body({"model": "m", **body}, "")


def test_what_openai_allows_of_it_is_sent_unchanged(tmp_path: Path) -> None:
    body = {"logprobs": True, "top_logprobs": 20, "n_probs": None, "logit_bias": {"1": -100}}
    assert program(tmp_path).change_body({"model": "m", **body}, "") is None


@pytest.mark.parametrize(
    "prompt",
    [
        {"messages": HALF}, {"prompt": [LONG, LONG]}, {"prompt": [7] * 1000}, {"input": [LONG] * 9}, {"prompt": None},
        {"messages": 5, "prompt": {"a": [[]]}}, {"tools": [2 * LONG]},
    ],
)  # fmt: skip
def test_a_prompt_that_may_fit_is_sent_unchanged(tmp_path: Path, prompt: Any) -> None:
    assert program(tmp_path).change_body({"model": "m", **prompt}, "") is None


def test_options_become_attributes() -> None:
    given = (("sleep-idle-seconds", "0"), ("ctx-checkpoints", "2"), ("rope-freq-base", "1e6"), ("gpu-layers", "0"))
    assert options_of(given) == {
        "sleep_idle_seconds": 0, "n_ctx_checkpoints": 2, "rope_freq_base": 1e6, "n_gpu_layers": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch-size", "0"), ("batch-size", "1.5"), ("batch-size", "65537"), ("ubatch-size", ""),
        ("sleep-idle-seconds", "-1"), ("rope-freq-scale", "nan"), ("rope-freq-base", "inf"), ("gpu-layers", "all"),
    ],
)  # fmt: skip
def test_values_out_of_bounds_are_refused(name: str, value: str) -> None:
    with pytest.raises(LoadFailed, match=rf"llm.engineArgs.{name} is {value!r}: set a .*number of"):
        options_of(((name, value),))


@pytest.mark.parametrize("name", ["model", "api-keys", "hostnames", "lora", "slot-save-path", "media-path", "hf_token"])
def test_other_options_are_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(LoadFailed, match=f"{name!r}, which gguf does not take: use sleep-idle-seconds, batch-size"):
        options_of(((name, "x"),))
