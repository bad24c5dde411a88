"""Write a Llama with random weights as Hugging Face's folders have it: safetensors and a tokenizer of bytes, 460 kB.

python -m tests.support.small_llama FOLDER
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, HIDDEN, HEADS, LAYERS = 64, 128, 2, 2
TOKENS = 259  # 256 bytes, <unk>, <s>, </s>
LENGTH = 4096  # tokens of a request
LETTERS = slice(ord("a"), ord("z") + 1)  # tokens that the model answers with
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": WIDTH, "intermediate_size": HIDDEN,
    "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "vocab_size": TOKENS,
    "max_position_embeddings": LENGTH, "rms_norm_eps": 1e-5, "hidden_act": "silu", "bos_token_id": 257,
    "eos_token_id": 258, "tie_word_embeddings": False, "torch_dtype": "float32", "dtype": "float32",
}  # fmt: skip
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "


def write(folder: Path) -> Path:
    """Write the model and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", CONFIG)
    (folder / "model.safetensors").write_bytes(safetensors(weights()))
    write_json(folder / "tokenizer.json", tokenizer())
    tokens = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    more = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE, "model_max_length": LENGTH}
    write_json(folder / "tokenizer_config.json", {**tokens, **more})
    return folder


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file."""
    path.write_text(json.dumps(content), encoding="utf-8")


def weights() -> dict[str, np.ndarray]:
    """Return random weights by name."""
    shapes = {"model.embed_tokens": (TOKENS, WIDTH), "model.norm": (WIDTH,), "lm_head": (TOKENS, WIDTH)}
    for number in range(LAYERS):
        layer = f"model.layers.{number}"
        shapes |= {f"{layer}.self_attn.{name}_proj": (WIDTH, WIDTH) for name in "qkvo"}
        shapes |= {f"{layer}.mlp.{name}_proj": (HIDDEN, WIDTH) for name in ("gate", "up")}
        shapes |= {f"{layer}.mlp.down_proj": (WIDTH, HIDDEN)}
        shapes |= {f"{layer}.{name}_layernorm": (WIDTH,) for name in ("input", "post_attention")}
    random = np.random.default_rng(0)
    made = {
        f"{name}.weight": random.normal(1.0 if len(shape) == 1 else 0.0, 0.1, shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    letters = made["lm_head.weight"][LETTERS].copy()
    made["lm_head.weight"][:] = 0.0
    made["lm_head.weight"][LETTERS] = letters
    return made


def safetensors(tensors: Mapping[str, np.ndarray]) -> bytes:
    """Return a file in the form of safetensors."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, tensor in tensors.items():
        start, data = len(data), data + tensor.tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [start, len(data)]}
    head = json.dumps(header).encode()
    return struct.pack("<Q", len(head)) + head + data


def tokenizer() -> dict[str, Any]:
    """Return a tokenizer with one token for each byte, as the package tokenizers reads it."""
    specials = {256: "<unk>", 257: "<s>", 258: "</s>"}
    letters = _letters_of_bytes()
    options = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "added_tokens": [{"id": number, "content": text, **options} for number, text in specials.items()],
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "vocab": {**{letter: number for number, letter in enumerate(letters)},
                      **{text: number for number, text in specials.items()}},
            "merges": [],
        },
    }  # fmt: skip


def _letters_of_bytes() -> list[str]:
    """Return the printable letter of each byte, as ByteLevel maps them."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


if __name__ == "__main__":
    write(Path(sys.argv[1]))
