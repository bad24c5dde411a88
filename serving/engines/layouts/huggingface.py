"""Folders of Hugging Face: `config.json`, a tokenizer or image processor, and an `.onnx` file or `*.safetensors`.

Files of these names are in other folders too. So the format is only chosen if `config.json` has `model_type`, as
transformers writes it; otherwise the folder is a plain one, with its `.onnx` file. Weights without an `.onnx` file are
also those of language models, so then the architecture must have a task of the format.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from serving.engines.base.errors import LoadFailed
from serving.engines.huggingface.config import (
    CONFIG,
    MODULES,
    PREPROCESSOR,
    TOKENIZER,
    TOKENIZER_CONFIG,
    known_task,
    read_object,
)
from serving.engines.layouts.layout import Layout

if TYPE_CHECKING:
    from serving.storage.base.artifact import Artifact

FORMAT: Final = "huggingface"
_BESIDE: Final = frozenset({TOKENIZER, TOKENIZER_CONFIG, PREPROCESSOR, MODULES, "vocab.txt"})
_SUFFIX: Final = ".onnx"
_WEIGHTS: Final = ".safetensors"
_MLFLOW: Final = "MLmodel"


def detect(artifact: Artifact, names: Sequence[str]) -> Layout | None:
    """Return the layout, or None if the folder is not one of Hugging Face with an ONNX export. Raises StorageError."""
    if CONFIG not in names or _BESIDE.isdisjoint(names) or _MLFLOW in names:
        return None
    is_export = any(name.lower().endswith(_SUFFIX) for name in names)
    if not is_export and not any(name.endswith(_WEIGHTS) for name in names):
        return None
    try:
        config = read_object(artifact, CONFIG)
    except LoadFailed:
        return None
    if not isinstance(config.get("model_type"), str) or not (is_export or known_task(config)):
        return None
    return Layout(artifact, "Hugging Face", FORMAT)
