"""The memory of a language model, before it is started."""

from __future__ import annotations

import pytest

from serving.engines.base.errors import LoadFailed
from serving.engines.gguf.file import Head, Value
from serving.engines.gguf.memory import MAX_PROMPT_CACHE, kv_bytes_per_token, most_batch, plan_memory

MIB = 1 << 20
VALUES: dict[str, Value] = {
    "general.architecture": "llama",
    "llama.context_length": 8192,
    "llama.block_count": 30,
    "llama.embedding_length": 576,
    "llama.attention.head_count": 9,
    "llama.attention.head_count_kv": 3,
    "llama.vocab_size": 49_152,
}
SMOL = Head(VALUES, 272, 98 * MIB)
"""SmolLM2-135M."""


def test_the_cache_of_a_token() -> None:
    assert kv_bytes_per_token(SMOL) == 30 * 3 * (64 + 64) * 2  # layers, heads, key and value, 16 bits


def test_each_layer_may_have_its_own_heads() -> None:
    mixed = Head({**VALUES, "llama.block_count": 3, "llama.attention.head_count_kv": [3, 0, 1]}, 1, 1)
    assert kv_bytes_per_token(mixed) == (3 + 0 + 1) * (64 + 64) * 2


def test_what_fits_is_planned() -> None:
    plan = plan_memory(SMOL, 98 * MIB, 4, 2048, 1024 * MIB, "m")
    assert plan.kv_cache == 23_040 * 2048 * 4
    assert plan.needed < 1024 * MIB
    assert 0 < plan.prompt_cache <= MAX_PROMPT_CACHE


def test_without_a_length_the_context_is_what_fits() -> None:
    assert plan_memory(SMOL, 98 * MIB, 4, 0, 0, "m").context == 8192
    assert plan_memory(SMOL, 98 * MIB, 4, 0, 600 * MIB, "m").context == 2048


def test_what_does_not_fit_names_numbers_and_remedy() -> None:
    with pytest.raises(LoadFailed, match=r"m needs .* for 8 requests of 8192 tokens .*resources.memory.*contextLength"):
        plan_memory(SMOL, 98 * MIB, 8, 8192, 512 * MIB, "m")


def test_a_context_longer_than_the_models_own_is_refused() -> None:
    with pytest.raises(LoadFailed, match="trained for 8192: set at most 8192"):
        plan_memory(SMOL, 98 * MIB, 1, 9000, 0, "m")


def test_a_large_vocabulary_needs_memory_for_each_token_of_a_batch() -> None:
    values = {name: value for name, value in VALUES.items() if name != "llama.vocab_size"}
    small, large = (plan_memory(Head(values, 1, MIB, size), MIB, 1, 512, 0, "m") for size in (32_000, 262_144))
    assert large.needed - small.needed == (262_144 - 32_000) * 512 * 4


def test_more_tokens_than_llama_cpp_counts_are_refused() -> None:
    unbounded = Head({**VALUES, "llama.context_length": 0}, 1, 1)
    with pytest.raises(LoadFailed, match="256 requests of 10000000 tokens are more than 2147483647 tokens"):
        plan_memory(unbounded, 1, 256, 10_000_000, 0, "m")


def test_an_encoder_computes_its_whole_context_at_once_and_has_no_cache() -> None:
    encoder = Head({**VALUES, "llama.attention.causal": False}, 1, 1)
    assert most_batch(encoder, embeddings=True, wanted=0) == 8192
    plan = plan_memory(encoder, MIB, 4, 4096, 0, "m", 8192)
    assert (plan.batch, plan.kv_cache) == (4096, 0)


def test_embeddings_of_a_language_model_have_a_larger_batch() -> None:
    assert most_batch(SMOL, embeddings=False, wanted=0) == 512
    assert most_batch(SMOL, embeddings=True, wanted=0) == 2048
    assert most_batch(SMOL, embeddings=True, wanted=64) == 64


@pytest.mark.parametrize("damaged", [float("nan"), float("inf"), -1, True, 2.5])
def test_numbers_that_are_none_count_as_absent(damaged: float) -> None:
    plain = {name: value for name, value in VALUES.items() if name != "llama.attention.head_count_kv"}
    heads: Value = [damaged] * 30
    expected = kv_bytes_per_token(Head(plain, 1, 1))
    assert kv_bytes_per_token(Head({**plain, "llama.attention.head_count_kv": heads}, 1, 1)) == expected
    assert kv_bytes_per_token(Head({**plain, "llama.attention.head_count_kv": damaged}, 1, 1)) == expected
