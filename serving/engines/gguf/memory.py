"""How much memory a language model needs in llama.cpp, before it is started. Pure.

weights     the tensors; llama.cpp maps the file, and a model that does not stay in memory is read again and again
KV cache    contextLength × slots × Σ over layers of heads_kv × (key_length + value_length) × 2 bytes (16-bit floats)
compute     the tokens of a batch (n_ubatch), each with a row of the vocabulary and some rows of the width, in 32 bits
process     the program itself
"""

from __future__ import annotations

from typing import Final, NamedTuple

from clusters.base.sizes import format_size
from serving.engines.base.errors import LoadFailed
from serving.engines.gguf.file import Head

BATCH: Final = 512  # tokens that are computed at once (llama.cpp's n_ubatch)
POOLED_BATCH: Final = 2048
"""Tokens of a model that computes embeddings: a pooled text must fit in one batch. Encoders have no larger limit."""
VOCABULARY: Final = 32_000  # tokens, if the file does not name them
MOST_TOKENS: Final = (1 << 31) - 1  # llama.cpp's limit of all slots together
WIDTHS: Final = 8  # rows of the model's width that a layer keeps for each token of a batch
FLOAT, HALF = 4, 2  # bytes
PROCESS: Final = 64 << 20  # bytes; measured 32 MiB with a model of 113 kB
LARGEST_DEFAULT: Final = 8192  # tokens; a model's own context may be a million, whose cache no small machine has
SMALLEST: Final = 256  # tokens
MAX_PROMPT_CACHE: Final = 256 << 20  # bytes of prompts that llama.cpp keeps for callers who come back


class MemoryPlan(NamedTuple):
    """Bytes by purpose, for `context` tokens in each of the slots, of which `batch` are computed at once."""

    context: int
    batch: int
    weights: int
    kv_cache: int
    other: int
    prompt_cache: int = 0

    @property
    def needed(self) -> int:
        """The bytes without which the model does not run; the prompt cache is given the rest."""
        return self.weights + self.kv_cache + self.other


def plan_memory(
    head: Head, weights: int, slots: int, context: int, memory: int, name: str, most_batch: int = BATCH
) -> MemoryPlan:
    """Return the plan for `slots` requests of `context` tokens (0: chosen here) in `memory` bytes (0: unknown).

    At most `most_batch` tokens are computed at once. Raises LoadFailed if the requests do not fit, or if the context is
    longer than the model's own.
    """
    own = head.number("context_length")
    if own and context > own:
        raise LoadFailed(
            f"{name}: llm.contextLength is {context}, and the model was trained for {own}: set at most {own}"
        )
    wanted = context or min(own or LARGEST_DEFAULT, LARGEST_DEFAULT)
    if wanted * slots > MOST_TOKENS:
        raise LoadFailed(
            f"{name}: {slots} requests of {wanted} tokens are more than {MOST_TOKENS} tokens: lower llm.contextLength "
            "or containerConcurrency"
        )
    made = _plan(head, weights, slots, wanted, most_batch)
    while not context and memory and made.needed > memory and made.context > SMALLEST:
        made = _plan(head, weights, slots, max(SMALLEST, made.context // 2), most_batch)
    if memory and made.needed > memory:
        parts = f"{format_size(made.weights)} of weights, {format_size(made.kv_cache)} of KV cache"
        raise LoadFailed(
            f"{name} needs {format_size(made.needed)} ({parts}) for {slots} requests of {made.context} tokens at once, "
            f"and the replica has {format_size(memory)}: raise resources.memory, or lower containerConcurrency or "
            "llm.contextLength"
        )
    left = memory - made.needed if memory else MAX_PROMPT_CACHE
    return made._replace(prompt_cache=min(MAX_PROMPT_CACHE, left // 2))


def kv_bytes_per_token(head: Head) -> int:
    """Return the bytes of the KV cache for one token of one request."""
    layers = head.number("block_count")
    width, heads = head.number("embedding_length"), head.number("attention.head_count")
    per_head = width // heads if heads else width
    key = head.number("attention.key_length", per_head)
    value = head.number("attention.value_length", per_head)
    heads_kv = head.numbers("attention.head_count_kv", layers, heads)
    return sum(heads_kv) * (key + value) * HALF


def most_batch(head: Head, embeddings: bool, wanted: int) -> int:
    """Return the most tokens to compute at once: those that the options name, or (0) as the model needs."""
    if wanted:
        return wanted
    if head.encodes:
        return LARGEST_DEFAULT
    return POOLED_BATCH if embeddings else BATCH


def _plan(head: Head, weights: int, slots: int, context: int, most_batch: int) -> MemoryPlan:
    vocabulary = 0 if head.encodes else head.vocabulary or head.number("vocab_size") or VOCABULARY
    batch = min(most_batch, context)
    compute = batch * FLOAT * (vocabulary + WIDTHS * head.number("embedding_length"))
    cache = 0 if head.encodes else kv_bytes_per_token(head) * context * slots
    return MemoryPlan(context, batch, weights, cache, compute + PROCESS)
