"""The options of vLLM that a Model may set."""

from __future__ import annotations

import json

import pytest

from serving.engines.base.errors import LoadFailed
from serving.engines.vllm.arguments import (
    FLAGS,
    LORA_RANK,
    LORAS,
    NAMES,
    OPTIONS,
    SLEEP,
    EngineArguments,
    read_arguments,
)
from tests.support.vllm_stub import RECORDINGS

NOTHING_FETCHED = "--allowed-media-domains=none.invalid"


def test_every_option_is_one_of_vllm() -> None:
    known = json.loads((RECORDINGS / "options.json").read_text())
    assert {*OPTIONS, *FLAGS} <= known.keys()
    assert {f"no-{name}" for name in FLAGS} <= known.keys()
    assert set(NAMES) == {*OPTIONS, *FLAGS, SLEEP, LORAS, LORA_RANK}
    assert {LORAS, LORA_RANK} <= known.keys()


def test_urls_of_callers_are_not_fetched_unless_their_domains_are_named() -> None:
    assert read_arguments([]) == EngineArguments([NOTHING_FETCHED], 0.0)
    one = read_arguments([("allowed-media-domains", "a.example")])
    assert one.argv == ["--allowed-media-domains=a.example"]
    two = read_arguments([("allowed-media-domains", "a.example, b.example")])
    assert two.argv == ["--allowed-media-domains", "a.example", "b.example"]


@pytest.mark.parametrize(
    ("name", "value", "argument"),
    [
        ("gpu-memory-utilization", "0.9", "--gpu-memory-utilization=0.9"),
        ("tensor-parallel-size", "2", "--tensor-parallel-size=2"),
        ("dtype", "bfloat16", "--dtype=bfloat16"),
        ("quantization", "fp8", "--quantization=fp8"),
        ("kv-cache-dtype", "fp8_e5m2", "--kv-cache-dtype=fp8_e5m2"),
        ("enforce-eager", "true", "--enforce-eager"),
        ("enforce-eager", "", "--enforce-eager"),
        ("enable-prefix-caching", "false", "--no-enable-prefix-caching"),
        ("cpu-offload-gb", "1.5", "--cpu-offload-gb=1.5"),
        ("limit-mm-per-prompt", '{"image":2}', '--limit-mm-per-prompt={"image": 2}'),
        (
            "speculative-config", '{"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":3}',
            '--speculative-config={"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3}',
        ),
    ],
)  # fmt: skip
def test_an_option_becomes_an_argument(name: str, value: str, argument: str) -> None:
    assert read_arguments([(name, value)]) == EngineArguments([NOTHING_FETCHED, argument], 0.0)


def test_the_seconds_until_sleep_are_our_own_option() -> None:
    assert read_arguments([(SLEEP, "900")]) == EngineArguments([NOTHING_FETCHED], 900.0)


def test_the_room_for_adapters_is_told_to_the_program() -> None:
    found = read_arguments([(LORA_RANK, "64"), (LORAS, "3")])
    assert (found.argv, found.lora_rank, found.loras) == ([NOTHING_FETCHED], 64, 3)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("gpu-memory-utilization", "1.1", "must be a number from 0.01 to 1"),
        ("gpu-memory-utilization", "nan", "must be a number from 0.01 to 1"),
        ("tensor-parallel-size", "0", "must be a whole number from 1 to 64"),
        ("tensor-parallel-size", "2 --trust-remote-code", "must be a whole number"),
        ("dtype", "int8", "must be one of auto, bfloat16"),
        ("quantization", "--trust-remote-code", "must be at most 63 letters"),
        ("reasoning-parser", "/tmp/x.py", "must be at most 63 letters"),
        ("enforce-eager", "yes", "must be true or false"),
        ("limit-mm-per-prompt", "[1]", "must be a JSON object"),
        ("allowed-media-domains", "http://a", "must be names of hosts"),
        ("speculative-config", '{"method":"eagle","model":"/x"}', "must have a method of ngram"),
        ("speculative-config", '{"method":"ngram","model":"/x"}', "has only num_speculative_tokens"),
        ("speculative-config", '{"method":"ngram","prompt_lookup_max":true}', "has only num_speculative_tokens"),
        ("max-lora-rank", "24", "must be one of 1, 8, 16"),
        ("max-loras", "0", "must be a whole number from 1 to 64"),
        ("sleep-idle-seconds", "-1", "must be a number from 0 to 604800"),
        ("max-num-seqs", "4", "is set by the platform: set containerConcurrency"),
        ("max-model-len", "4", "is set by the platform: set contextLength"),
        ("trust-remote-code", "true", "is set by the platform: code of a model's author is never"),
        ("enable-sleep-mode", "true", "is set by the platform: set sleep-idle-seconds"),
        ("hf-overrides", "{}", "is not an option that a Model may set: use one of allowed-media-domains"),
        ("middleware", "os.system", "is not an option that a Model may set"),
        ("tool-parser-plugin", "/x.py", "is not an option that a Model may set"),
        ("chat-template", "/etc/passwd", "is not an option that a Model may set"),
    ],
)
def test_other_options_and_values_are_refused(name: str, value: str, words: str) -> None:
    with pytest.raises(LoadFailed, match=f"engineArgs: {name} {words}"):
        read_arguments([(name, value)])
