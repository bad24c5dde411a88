"""Check the folder of a model, and those of its adapters, before the engine starts. Their code never runs.

A start of vLLM takes a minute and more, and its errors are long. So what it would refuse later is refused here at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from serving.engines.base.engine import Adapter
from serving.engines.base.errors import LoadFailed
from serving.engines.base.weights import CONVERT, check_weights, read_json_object, tensors_of, top_names
from serving.engines.vllm.arguments import RANKS
from serving.storage.base.artifact import Artifact

CONFIG: Final = "config.json"
ADAPTER_CONFIG: Final = "adapter_config.json"
ADAPTER_WEIGHTS: Final = "adapter_model.safetensors"
_GENERATES: Final = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
_TOKENIZERS: Final = ("tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json", "tiktoken.model")


def vet_model(artifact: Artifact) -> None:
    """Check the files of a model. Raises LoadFailed, StorageError."""
    names = () if artifact.content is not None else top_names(artifact.names())
    if CONFIG not in names:
        raise LoadFailed(f"{artifact.uri} has no file {CONFIG}: name the folder of a model of Hugging Face")
    _check_architecture(read_json_object(artifact, CONFIG), artifact.uri)
    for name in names:
        if name.endswith("config.json"):
            _check_no_code(read_json_object(artifact, name), name, artifact.uri)
    if not any(name in names for name in _TOKENIZERS):
        raise LoadFailed(f"{artifact.uri} has no tokenizer ({', '.join(_TOKENIZERS[:2])}): copy it into the folder")
    check_weights(artifact, names)


def vet_adapter(adapter: Adapter) -> int:
    """Check the files of a LoRA adapter and return its rank. Raises LoadFailed, StorageError."""
    files = Artifact(Path(adapter.path).resolve(), None, uri=f"the adapter {adapter.name}")
    names = top_names(files.names())
    if ADAPTER_CONFIG not in names:
        raise LoadFailed(f"{files.uri} has no file {ADAPTER_CONFIG}: name the folder of a LoRA adapter of PEFT")
    if ADAPTER_WEIGHTS not in names:
        raise LoadFailed(f"{files.uri} has no file {ADAPTER_WEIGHTS}: {CONVERT}")
    config = read_json_object(files, ADAPTER_CONFIG)
    _check_no_code(config, ADAPTER_CONFIG, files.uri)
    rank = config.get("r")
    if config.get("peft_type") != "LORA" or not isinstance(rank, int) or not 1 <= rank <= RANKS[-1]:
        raise LoadFailed(f"{files.uri} is not a LoRA adapter with a rank r from 1 to {RANKS[-1]}: see {ADAPTER_CONFIG}")
    tensors_of(files, ADAPTER_WEIGHTS)
    return rank


def _check_architecture(config: Mapping[str, Any], uri: str) -> None:
    given = config.get("architectures")
    if not isinstance(given, list) or not given or not all(isinstance(one, str) for one in given):
        raise LoadFailed(f"{uri}: {CONFIG} has no architectures: save the model again with save_pretrained")
    if not given[0].endswith(_GENERATES):
        raise LoadFailed(
            f"{uri}: a {given[0][:80]} does not generate text, as a …{' or …'.join(_GENERATES[:2])} does: serve it as "
            "format huggingface"
        )


def _check_no_code(config: Mapping[str, Any], name: str, uri: str) -> None:
    if config.get("auto_map"):
        raise LoadFailed(
            f"{uri}: {name} has auto_map, code of the model's author, which is never run: remove auto_map if vLLM "
            "itself has the architecture, or use another model"
        )
