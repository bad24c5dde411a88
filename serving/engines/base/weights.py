"""Check the weights of a Hugging Face folder before a library loads them: whole files of safetensors, no pickles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import msgspec

from serving.engines.base.errors import LoadFailed
from serving.engines.base.safetensors import read_header
from serving.storage.base import disk

if TYPE_CHECKING:
    from io import FileIO

    from serving.storage.base.artifact import Artifact

SUFFIX: Final = ".safetensors"
INDEX: Final = ".safetensors.index.json"
MAX_JSON: Final = 16 << 20  # bytes; the index of a model with 100 000 tensors takes 10 MiB
PICKLED: Final = (".bin", ".pt", ".pth", ".ckpt")
"""Suffixes of weights whose loading can run code."""
CONVERT: Final = "convert it by save_pretrained(FOLDER, safe_serialization=True) of transformers"
_SHARD: Final = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.safetensors")


def top_names(names: Iterable[str]) -> Sequence[str]:
    """Return the names of the files that are not in subfolders."""
    return [name for name in names if "/" not in name]


def check_weights(artifact: Artifact, names: Sequence[str]) -> Sequence[str]:
    """Return the files of weights among `names`, once they are complete. Raises LoadFailed, StorageError."""
    weights = [name for name in names if name.endswith(SUFFIX)]
    if not weights:
        pickled = next((name for name in names if name.endswith(PICKLED)), "")
        if pickled:
            raise LoadFailed(f"{artifact.uri}: {pickled} is pickled, which can run code, and is never read: {CONVERT}")
        raise LoadFailed(f"{artifact.uri} has no weights (*{SUFFIX}): copy the whole folder")
    tensors = {name: tensors_of(artifact, name) for name in weights}
    _check_shards(weights, artifact.uri)
    for name in names:
        if name.endswith(INDEX):
            _check_index(artifact, name, tensors)
    return weights


def tensors_of(artifact: Artifact, name: str) -> frozenset[str]:
    """Return the names of a file's tensors, once its header is checked. Raises LoadFailed, StorageError."""
    with closing(_open(artifact, name)) as file:
        size = file.seek(0, 2)
        file.seek(0)
        return frozenset(read_header(file, size, f"{artifact.uri}: {name}"))


def read_json_object(artifact: Artifact, name: str) -> Mapping[str, Any]:
    """Return the JSON object in a file of at most `MAX_JSON` bytes. Raises LoadFailed, StorageError."""
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
    places = read_json_object(artifact, name).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise LoadFailed(f"{artifact.uri}: {name} has no weight_map: save the model again")
    for tensor, file in places.items():
        if file not in tensors:
            raise LoadFailed(f"{artifact.uri} has no file {str(file)[:200]!r} of {name}: copy the whole folder")
        if tensor not in tensors[file]:
            raise LoadFailed(f"{artifact.uri}: {file} has no tensor {tensor[:100]!r} of {name}: copy it again")


def _open(artifact: Artifact, name: str) -> FileIO:
    return disk.open_regular(artifact.path / name, f"{artifact.uri}: {name!r}", artifact.path)
