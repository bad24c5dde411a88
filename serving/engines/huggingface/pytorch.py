"""Weights without an ONNX export, in PyTorch with transformers, in a separate process.

The libraries take seconds and 0.7 GB to import, and only a new process recovers from some errors of a GPU.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from clusters.base.distribution import install_command
from serving.engines.base.errors import LoadFailed, MissingEngine
from serving.engines.base.folder import ModelFolder, check_digests
from serving.engines.base.weights import INDEX, PICKLED, check_weights, top_names
from serving.engines.child.engine import ChildEngine
from serving.engines.huggingface.config import CONFIG, EXPORT, read_object

if TYPE_CHECKING:
    from serving.engines.base.engine import EngineOptions
    from serving.storage.base.artifact import Artifact

MODEL: Final = "serving.engines.huggingface.pytorch_model"
WEIGHTS: Final = "model.safetensors"
EXTRA: Final = "huggingface-torch"
_LIBRARIES: Final = ("torch", "transformers", "safetensors")
_SHARD: Final = "model-"
_ADAPTER: Final = "adapter_config.json"


def load(artifact: Artifact, options: EngineOptions) -> ChildEngine:
    """Check the weights and load them in a process. Raises LoadFailed, MissingEngine, StorageError."""
    weight_files(artifact)
    if _ADAPTER in artifact.names():
        raise LoadFailed(f"{artifact.uri} is an adapter ({_ADAPTER}): merge it into its model, and save that")
    if read_object(artifact, CONFIG).get("quantization_config"):
        raise LoadFailed(f"{artifact.uri} has quantized weights (quantization_config): save the model without it")
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingEngine(
            f"{artifact.uri} has weights and no ONNX export, so it needs {missing[0]}, which is not installed: "
            f"{install_command(f'knodel[{EXTRA}]')}; or {EXPORT}"
        )
    check_digests(artifact)
    return ChildEngine(MODEL, ModelFolder(artifact, in_place=True), artifact, options)


def weight_files(artifact: Artifact) -> Sequence[str]:
    """Return the names of the files with the model's weights, once they are complete. Raises LoadFailed, StorageError.

    Other files of weights in the folder are other variants of the model.
    """
    names = top_names(artifact.names())
    if WEIGHTS in names:
        return check_weights(artifact, [WEIGHTS])
    return check_weights(
        artifact, [name for name in names if name.startswith(_SHARD) or name.endswith((INDEX, *PICKLED))]
    )
