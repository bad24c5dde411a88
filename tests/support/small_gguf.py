"""Write a language model in GGUF with random weights, which llama.cpp loads: 120 kB.

python -m tests.support.small_gguf FILE, in an environment with the package gguf.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import gguf  # type: ignore[import-not-found, import-untyped, unused-ignore]
import numpy as np

WIDTH, HIDDEN, HEADS = 32, 64, 2
BYTES = [f"<0x{number:02X}>".encode() for number in range(256)]
LETTERS = [bytes([letter]) for letter in b"abcdefghijklmnopqrstuvwxyz"]
TOKENS = [b"<unk>", b"<s>", b"</s>", *BYTES, "▁".encode(), *LETTERS]
UNKNOWN, CONTROL, BYTE, NORMAL = 2, 3, 6, 1
"""Types of tokens (llama.cpp's llama_token_type)."""


def write(
    path: str, width: int = WIDTH, blocks: int = 1, context: int = 256, seed: int = 0, tensors_of_part: int = 0
) -> None:
    """Write the model, in parts of `tensors_of_part` tensors unless that is 0.

    With a larger `width` and more `blocks` it takes longer for each token.
    """
    file = gguf.GGUFWriter(path, "llama", split_max_tensors=tensors_of_part)
    file.add_context_length(context)
    file.add_embedding_length(width)
    file.add_block_count(blocks)
    file.add_feed_forward_length(HIDDEN)
    file.add_head_count(HEADS)
    file.add_head_count_kv(HEADS)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_rope_dimension_count(width // HEADS)
    file.add_file_type(0)
    file.add_tokenizer_model("llama")
    file.add_token_list(TOKENS)
    file.add_token_scores([0.0] * len(TOKENS))
    file.add_token_types([UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * (len(TOKENS) - 259)])
    file.add_bos_token_id(1)
    file.add_eos_token_id(2)
    file.add_unk_token_id(0)
    random = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (len(TOKENS), width),
        "output": (len(TOKENS), width),
        "output_norm": (width,),
    }
    for block in range(blocks):
        shapes |= {
            f"blk.{block}.attn_norm": (width,), f"blk.{block}.ffn_norm": (width,),
            f"blk.{block}.ffn_down": (width, HIDDEN),
            **{f"blk.{block}.attn_{name}": (width, width) for name in ("q", "k", "v", "output")},
            **{f"blk.{block}.ffn_{name}": (HIDDEN, width) for name in ("gate", "up")},
        }  # fmt: skip
    for name, shape in shapes.items():
        file.add_tensor(f"{name}.weight", random.normal(1.0 if len(shape) == 1 else 0.0, 0.1, shape).astype(np.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def content(width: int = WIDTH, blocks: int = 1, context: int = 256, seed: int = 0) -> bytes:
    """Return the content of the file."""
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        write(file.name, width, blocks, context, seed)
        return Path(file.name).read_bytes()


def write_adapter(path: str) -> None:
    """Write a LoRA adapter for the model, which changes its answers."""
    file = gguf.GGUFWriter(path, "llama")
    file.add_type("adapter")
    file.add_string("adapter.type", "lora")
    file.add_float32("adapter.lora.alpha", 64.0)
    random = np.random.default_rng(1)
    for part, shape in (("a", (4, WIDTH)), ("b", (WIDTH, 4))):
        file.add_tensor(f"blk.0.attn_v.weight.lora_{part}", random.normal(0.0, 1.0, shape).astype(np.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def write_encoder(path: str, context: int = 1024) -> None:
    """Write a model that only computes embeddings (BERT), each of the token [CLS]."""
    file = gguf.GGUFWriter(path, "bert")
    file.add_context_length(context)
    file.add_embedding_length(WIDTH)
    file.add_block_count(1)
    file.add_feed_forward_length(HIDDEN)
    file.add_head_count(HEADS)
    file.add_layer_norm_eps(1e-12)
    file.add_causal_attention(False)
    file.add_pooling_type(gguf.PoolingType.CLS)
    file.add_token_type_count(2)
    file.add_tokenizer_model("bert")
    tokens = [b"[PAD]", b"[UNK]", b"[CLS]", b"[SEP]", b"[MASK]", *("▁".encode() + letter for letter in LETTERS)]
    file.add_token_list(tokens)
    file.add_token_types([CONTROL, UNKNOWN, CONTROL, CONTROL, CONTROL, *[NORMAL] * len(LETTERS)])
    for name, number in (("pad", 0), ("unk", 1), ("bos", 2), ("cls", 2), ("seperator", 3), ("eos", 3), ("mask", 4)):
        file.add_uint32(f"tokenizer.ggml.{name}_token_id", number)
    random = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (len(tokens), WIDTH), "token_types.weight": (2, WIDTH),
        "position_embd.weight": (context, WIDTH),
        "blk.0.ffn_up.weight": (HIDDEN, WIDTH), "blk.0.ffn_up.bias": (HIDDEN,),
        "blk.0.ffn_down.weight": (WIDTH, HIDDEN), "blk.0.ffn_down.bias": (WIDTH,),
    }  # fmt: skip
    for name in ("q", "k", "v", "output"):
        shapes |= {f"blk.0.attn_{name}.weight": (WIDTH, WIDTH), f"blk.0.attn_{name}.bias": (WIDTH,)}
    for name in ("token_embd_norm", "blk.0.attn_output_norm", "blk.0.layer_output_norm"):
        shapes |= {f"{name}.weight": (WIDTH,), f"{name}.bias": (WIDTH,)}
    for name, shape in shapes.items():
        file.add_tensor(name, random.normal(0.0, 0.5, shape).astype(np.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


if __name__ == "__main__":
    write(sys.argv[1])
