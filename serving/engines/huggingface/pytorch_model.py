"""A model of transformers in PyTorch. Only the process of a model imports this module (`serving.engines.child.main`).

This module reads the weights and passes tensors to transformers, which opens no file of the folder or of the Hub.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["USE_HUB_KERNELS"] = "NO"  # a configuration may name kernels of the Hub, which are code

import torch
import transformers
from safetensors.torch import load_file

from serving.engines.base.datatypes import Tensor
from serving.engines.base.device import is_device_lost
from serving.engines.base.engine import ANY, BaseEngine, Cancellation, EngineOptions, Signature, TensorSpec
from serving.engines.base.errors import InferenceFailed, InputRefused, LoadFailed, short_reason
from serving.engines.huggingface.config import (
    CLASSIFY_IMAGE,
    CLASSIFY_TEXT,
    CLASSIFY_WORDS,
    CONFIG,
    EMBEDDINGS,
    EXPORT,
    FILL_MASK,
    read_config,
    read_object,
)
from serving.engines.huggingface.pytorch import weight_files

if TYPE_CHECKING:
    from serving.storage.base.artifact import Artifact

PLATFORM: Final = "pytorch_transformers"
_CLASSES: Final = {
    CLASSIFY_TEXT: transformers.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    CLASSIFY_WORDS: transformers.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    FILL_MASK: transformers.MODEL_FOR_MASKED_LM_MAPPING,
    EMBEDDINGS: transformers.MODEL_MAPPING,
    CLASSIFY_IMAGE: transformers.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING,
}
_LOGITS, _VECTORS = "logits", "last_hidden_state"
_PIXELS: Final = TensorSpec("pixel_values", "FP32", (ANY, 3, ANY, ANY))
_IDS, _MASK, _TYPES = (TensorSpec(n, "INT64", (ANY, ANY)) for n in ("input_ids", "attention_mask", "token_type_ids"))
_UNUSED: Final = "pooler."  # embeddings are made of the tokens' vectors, so many checkpoints have no weights of it
_NOT_READ: Final = ("attn_implementation", "_attn_implementation", "experts_implementation", "transformers_weights")
"""Members of a configuration that can name code elsewhere, or other files."""

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def load(artifact: Artifact, options: EngineOptions) -> PytorchEngine:
    """Load the weights of the folder, on a GPU where there is one. Raises LoadFailed, StorageError."""
    torch.set_num_threads(options.threads)
    task, given = read_config(artifact).task, read_object(artifact, CONFIG)
    state: dict[str, torch.Tensor] = {}
    try:
        for name in weight_files(artifact):
            state |= load_file(artifact.path / name)  # mapped into memory
        config, kind = _class_of(given, task, artifact.uri)
        dtype = next((one.dtype for one in state.values() if one.is_floating_point()), torch.float32)
        model, info = kind.from_pretrained(None, config=config, state_dict=state, dtype=dtype, output_loading_info=True)
        missing = sorted(name for name in info["missing_keys"] if task != EMBEDDINGS or not name.startswith(_UNUSED))
        if missing:
            raise LoadFailed(
                f"{artifact.uri}: the weights have no {missing[0]!r}, which a {kind.__name__} needs: "
                "save the model that was trained for the task"
            )
        engine = PytorchEngine(model.to("cuda" if torch.cuda.is_available() else "cpu"), task)
        if task != CLASSIFY_IMAGE:  # models that find the end of a text by its padding fail on two of them without it
            pair = np.ones((2, 1), np.int64)
            engine.infer(dict.fromkeys((spec.name for spec in engine.signature.inputs), pair), [engine.output])
        return engine
    except LoadFailed:
        raise
    except Exception as error:  # the libraries' errors have no common base class
        raise LoadFailed(f"transformers cannot load {artifact.uri}: {short_reason(error)}") from error


class PytorchEngine(BaseEngine):
    """A model with the inputs and the output of its ONNX export."""

    def __init__(self, model: Any, task: str) -> None:
        self._model = model
        self._vocabulary = 0 if task == CLASSIFY_IMAGE else model.get_input_embeddings().weight.shape[0]
        self.output = _VECTORS if task == EMBEDDINGS else _LOGITS
        super().__init__(Signature(PLATFORM, _inputs(model, task), (TensorSpec(self.output, "FP32", None),)))

    def infer(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], _: Cancellation | None = None
    ) -> Sequence[Tensor]:
        """Run the model once. Raises InputRefused, InferenceFailed; the library's error if the GPU is lost."""
        ids = inputs.get(_IDS.name)
        if ids is not None and ids.max(initial=0) >= self._vocabulary:  # a GPU would be lost
            raise InputRefused(f"the tokenizer has the token {ids.max()}, and the model has {self._vocabulary} tokens")
        try:
            with torch.inference_mode():
                results = self._model(**{name: self._tensor(array) for name, array in inputs.items()})
                return [results[name].float().cpu().numpy() for name in outputs]
        except Exception as error:  # as in `load`
            if is_device_lost(error):
                raise  # ends the process, and the next request gets a new one
            raise InferenceFailed(short_reason(error)) from error

    def close(self) -> None:
        """Release the model."""
        self._model = None

    def _tensor(self, array: Tensor) -> torch.Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(array)).to(self._model.device)
        return tensor.to(self._model.dtype) if tensor.is_floating_point() else tensor


def _class_of(given: Mapping[str, Any], task: str, uri: str) -> tuple[Any, Any]:
    """Return the configuration and the class of the model. Raises LoadFailed."""
    kind = given.get("model_type")
    if kind not in transformers.CONFIG_MAPPING:
        raise LoadFailed(
            f"{uri}: transformers {transformers.__version__} has no model of the type {str(kind)[:80]!r}: update it"
        )
    known = {name: value for name, value in given.items() if name not in _NOT_READ}
    config = transformers.CONFIG_MAPPING[kind].from_dict(known)
    config.use_cache = False  # of text that is being generated
    if type(config) not in _CLASSES[task]:
        raise LoadFailed(f"{uri}: transformers has no {kind} for {task}: {EXPORT}")
    found = _CLASSES[task][type(config)]
    several = found if isinstance(found, tuple | list) else (found,)
    return config, next((one for one in several if one.__name__ in given["architectures"]), several[0])


def _inputs(model: Any, task: str) -> tuple[TensorSpec, ...]:
    if task == CLASSIFY_IMAGE:
        return (_PIXELS,)
    takes = inspect.signature(model.forward).parameters
    has_types = _TYPES.name in takes and (getattr(model.config, "type_vocab_size", 0) or 0) > 1
    return (_IDS, _MASK, _TYPES) if has_types else (_IDS, _MASK)
