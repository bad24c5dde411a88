"""Check the folder of a model, and those of its adapters, before the engine starts. Their code never runs.

A start of vLLM takes a minute and more, and its errors are long. So what it would refuse later is refused here at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from serving.engines.base.engine import Adapter
from serving.engines.base.errors import LoadFailed
from serving.engines.vllm.arguments import RANKS
from serving.engines.vllm.safetensors import read_header
from serving.storage.base import disk
from serving.storage.base.artifact import Artifact

if TYPE_CHECKING:
    from io import FileIO

CONFIG: Final = "config.json"
SUFFIX: Final = ".safetensors"
INDEX: Final = ".safetensors.index.json"
ADAPTER_CONFIG: Final = "adapter_config.json"
ADAPTER_WEIGHTS: Final = "adapter_model.safetensors"
MAX_JSON: Final = 16 << 20  # bytes; the index of a model with 100 000 tensors takes 10 MiB
_GENERATES: Final = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
_TOKENIZERS: Final = ("tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json", "tiktoken.model")
_PICKLED: Final = (".bin", ".pt", ".pth", ".ckpt")
_SHARD: Final = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.safetensors")
_CONVERT: Final = "convert it by save_pretrained(FOLDER, safe_serialization=True) of transformers"


def vet_model(artifact: Artifact) -> None:
    """Check the files of a model. Raises LoadFailed, StorageError."""
    names = () if artifact.content is not None else _top(artifact.names())
    if CONFIG not in names:
        raise LoadFailed(f"{artifact.uri} has no file {CONFIG}: name the folder of a model of Hugging Face")
    _check_architecture(_read_object(artifact, CONFIG), artifact.uri)
    for name in names:
        if name.endswith("config.json"):
            _check_no_code(_read_object(artifact, name), name, artifact.uri)
    if not any(name in names for name in _TOKENIZERS):
        raise LoadFailed(f"{artifact.uri} has no tokenizer ({', '.join(_TOKENIZERS[:2])}): copy it into the folder")
    _check_weights(artifact, names)


def vet_adapter(adapter: Adapter) -> int:
    """Check the files of a LoRA adapter and return its rank. Raises LoadFailed, StorageError."""
    files = Artifact(Path(adapter.path).resolve(), None, uri=f"the adapter {adapter.name}")
    names = _top(files.names())
    if ADAPTER_CONFIG not in names:
        raise LoadFailed(f"{files.uri} has no file {ADAPTER_CONFIG}: name the folder of a LoRA adapter of PEFT")
    if ADAPTER_WEIGHTS not in names:
        raise LoadFailed(f"{files.uri} has no file {ADAPTER_WEIGHTS}: {_CONVERT}")
    config = _read_object(files, ADAPTER_CONFIG)
    _check_no_code(config, ADAPTER_CONFIG, files.uri)
    rank = config.get("r")
    if config.get("peft_type") != "LORA" or not isinstance(rank, int) or not 1 <= rank <= RANKS[-1]:
        raise LoadFailed(f"{files.uri} is not a LoRA adapter with a rank r from 1 to {RANKS[-1]}: see {ADAPTER_CONFIG}")
    _tensors(files, ADAPTER_WEIGHTS)
    return rank


def _top(names: Iterable[str]) -> Sequence[str]:
    return [name for name in names if "/" not in name]


def _check_architecture(config: Mapping[str, Any], uri: str) -> None:
    given = config.get("architectures")
    if not isinstance(given, list) or not given or not all(isinstance(one, str) for one in given):
        raise LoadFailed(f"{uri}: {CONFIG} has no architectures: save the model again with save_pretrained")
    if not given[0].endswith(_GENERATES):
        raise LoadFailed(
            f"{uri}: a {given[0][:80]} does not generate text, as a …{' or …'.join(_GENERATES[:2])} does: export it to "
            "ONNX and serve it as format onnx"
        )


def _check_no_code(config: Mapping[str, Any], name: str, uri: str) -> None:
    if config.get("auto_map"):
        raise LoadFailed(
            f"{uri}: {name} has auto_map, code of the model's author, which is never run: remove auto_map if vLLM "
            "itself has the architecture, or use another model"
        )


def _check_weights(artifact: Artifact, names: Sequence[str]) -> None:
    weights = [name for name in names if name.endswith(SUFFIX)]
    if not weights:
        pickled = next((name for name in names if name.endswith(_PICKLED)), "")
        if pickled:
            raise LoadFailed(f"{artifact.uri}: {pickled} is pickled, which can run code, and is never read: {_CONVERT}")
        raise LoadFailed(f"{artifact.uri} has no weights (*{SUFFIX}): copy the whole folder")
    tensors = {name: _tensors(artifact, name) for name in weights}
    _check_shards(weights, artifact.uri)
    for name in names:
        if name.endswith(INDEX):
            _check_index(artifact, name, tensors)


def _check_shards(weights: Sequence[str], uri: str) -> None:
    """Check that each `…-00001-of-00003.safetensors` has all its neighbours."""
    for name in weights:
        found = _SHARD.fullmatch(name)
        if found is None:
            continue
        for number in range(1, min(int(found[3]), disk.MOST_FILES) + 1):
            other = f"{found[1]}-{number:05}-of-{found[3]}{SUFFIX}"
            if other not in weights:
                raise LoadFailed(f"{uri} has {name} but not {other}: copy the whole folder")


def _check_index(artifact: Artifact, name: str, tensors: Mapping[str, frozenset[str]]) -> None:
    places = _read_object(artifact, name).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise LoadFailed(f"{artifact.uri}: {name} has no weight_map: save the model again")
    for tensor, file in places.items():
        if file not in tensors:
            raise LoadFailed(f"{artifact.uri} has no file {str(file)[:200]!r} of {name}: copy the whole folder")
        if tensor not in tensors[file]:
            raise LoadFailed(f"{artifact.uri}: {file} has no tensor {tensor[:100]!r} of {name}: copy it again")


def _tensors(artifact: Artifact, name: str) -> frozenset[str]:
    """Return the names of a file's tensors, once its header is checked."""
    with closing(_open(artifact, name)) as file:
        size = file.seek(0, 2)
        file.seek(0)
        return frozenset(read_header(file, size, f"{artifact.uri}: {name}"))


def _read_object(artifact: Artifact, name: str) -> Mapping[str, Any]:
    with closing(_open(artifact, name)) as file:
        content = file.read(MAX_JSON + 1) or b""
    if len(content) > MAX_JSON:
        raise LoadFailed(f"{artifact.uri}: {name} is larger than {MAX_JSON >> 20} MiB")
    try:
        found = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LoadFailed(f"{artifact.uri}: {name} is not valid JSON ({error}): copy it again") from error
    if not isinstance(found, dict):
        raise LoadFailed(f"{artifact.uri}: {name} is not a JSON object: copy it again")
    return found


def _open(artifact: Artifact, name: str) -> FileIO:
    return disk.open_regular(artifact.path / name, f"{artifact.uri}: {name!r}", artifact.path)
