"""Folders of Hugging Face with an ONNX export: `config.json`, a tokenizer or image processor, and an `.onnx` file.

Files of these names are in other folders too. So the format is only chosen if `config.json` has `model_type`, as
transformers writes it; otherwise the folder is a plain one, with its `.onnx` file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from serving.engines.layouts.layout import Layout

if TYPE_CHECKING:
    from serving.storage.base.artifact import Artifact

FORMAT: Final = "huggingface"
CONFIG: Final = "config.json"
_BESIDE: Final = frozenset(
    {"tokenizer.json", "tokenizer_config.json", "preprocessor_config.json", "vocab.txt", "modules.json"}
)
_SUFFIX: Final = ".onnx"
_MLFLOW: Final = "MLmodel"
_MAX_CONFIG: Final = 4 << 20  # bytes


def detect(artifact: Artifact, names: Sequence[str]) -> Layout | None:
    """Return the layout, or None if the folder is not one of Hugging Face with an ONNX export. Raises StorageError."""
    if CONFIG not in names or _BESIDE.isdisjoint(names) or _MLFLOW in names:
        return None
    if not any(name.lower().endswith(_SUFFIX) for name in names) or not _has_model_type(artifact):
        return None
    return Layout(artifact, "Hugging Face", FORMAT)


def _has_model_type(artifact: Artifact) -> bool:
    content = artifact.read(CONFIG)
    try:
        config = msgspec.json.decode(content) if len(content) <= _MAX_CONFIG else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(config, dict) and isinstance(config.get("model_type"), str)
