"""The checks of a model's folder before vLLM starts."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.engines.base.engine import Adapter
from serving.engines.base.errors import LoadFailed
from serving.engines.base.folder import check_digests
from serving.engines.vllm.folder import vet_adapter, vet_model
from serving.storage.base import disk
from serving.storage.base.artifact import Artifact
from serving.storage.base.errors import StorageError
from tests.support.small_llama import CONFIG, safetensors, weights, write, write_json

INDEX = "model.safetensors.index.json"
Change = Callable[[Path], object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path.resolve() / "model")


def vet(folder: Path) -> None:
    vet_model(Artifact(folder, None, uri="the model"))


def shard(folder: Path) -> None:
    """Write the weights as two files with an index."""
    tensors = weights()
    names = sorted(tensors)
    places: dict[str, str] = {}
    for number, part in enumerate((names[:9], names[9:]), 1):
        file = f"model-{number:05}-of-00002.safetensors"
        (folder / file).write_bytes(safetensors({name: tensors[name] for name in part}))
        places |= dict.fromkeys(part, file)
    write_json(folder / INDEX, {"metadata": {}, "weight_map": places})
    (folder / "model.safetensors").unlink()


def config(**changes: Any) -> Change:
    return lambda folder: write_json(folder / "config.json", {**CONFIG, **changes})


def test_a_whole_folder_is_accepted(folder: Path) -> None:
    vet(folder)
    shard(folder)
    vet(folder)
    (folder / "training_args.bin").write_bytes(b"never read")
    (folder / "original").mkdir()
    (folder / "original" / "consolidated.00.pth").write_bytes(b"never read")
    vet(folder)


@pytest.mark.parametrize("name", ["Qwen3ForCausalLM", "Qwen3VLForConditionalGeneration", "GPT2LMHeadModel"])
def test_models_that_generate_text_are_accepted(folder: Path, name: str) -> None:
    config(architectures=[name])(folder)
    vet(folder)


def remove(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def put(name: str, content: bytes) -> Change:
    return lambda folder: (folder / name).write_bytes(content)


def cut(folder: Path) -> None:
    os.truncate(folder / "model.safetensors", 300_000)


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def lost_shard(folder: Path) -> None:
    shard(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()


def lost_shard_and_index(folder: Path) -> None:
    lost_shard(folder)
    (folder / INDEX).unlink()


def wrong_index(folder: Path) -> None:
    shard(folder)
    found = json.loads((folder / INDEX).read_text())
    write_json(folder / INDEX, {"weight_map": {**found["weight_map"], "extra": "model-00001-of-00002.safetensors"}})


def index_elsewhere(folder: Path) -> None:
    write_json(folder / INDEX, {"weight_map": {"lm_head.weight": "../model.safetensors"}})


@pytest.mark.bad_input("artifact-headers")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (remove("config.json"), "has no file config.json: name the folder"),
        (put("config.json", b"{"), "config.json is not valid JSON"),
        (put("config.json", b"[]"), "config.json is not a JSON object"),
        (put("config.json", b" " * (17 << 20)), "config.json is larger than 16 MiB"),
        (config(architectures=None), "config.json has no architectures"),
        (config(architectures=["BertModel"]), "a BertModel does not generate text.* serve it as format huggingface"),
        (config(auto_map={"AutoModelForCausalLM": "modeling_x.X"}), "config.json has auto_map, code .* never run"),
        (
            put("tokenizer_config.json", b'{"auto_map": {"AutoTokenizer": ["x.X", null]}}'),
            "tokenizer_config.json has auto_map",
        ),
        (remove("tokenizer.json"), "has no tokenizer .tokenizer.json, tokenizer.model.: copy it"),
        (remove("model.safetensors"), "has no weights"),
        (pickled, "pytorch_model.bin is pickled, which can run code, and is never read: convert it by save_pretrained"),
        (cut, "model.safetensors: tensor .* the file is truncated"),
        (lost_shard, "has model-00001-of-00002.safetensors but not model-00002-of-00002.safetensors"),
        (lost_shard_and_index, "has model-00001-of-00002.safetensors but not model-00002-of-00002.safetensors"),
        (wrong_index, "model-00001-of-00002.safetensors has no tensor 'extra'"),
        (index_elsewhere, "has no file '../model.safetensors'"),
        (put(INDEX, b"{}"), "has no weight_map"),
    ],
)
def test_a_folder_that_cannot_be_served_is_refused_with_the_remedy(folder: Path, change: Change, words: str) -> None:
    change(folder)
    with pytest.raises(LoadFailed, match=rf"the model.*{words}"):
        vet(folder)


def test_a_single_file_is_refused() -> None:
    with pytest.raises(LoadFailed, match="name the folder"):
        vet_model(Artifact(Path("model.safetensors"), safetensors(weights()), uri="the model"))


def test_a_link_to_the_outside_is_refused(folder: Path) -> None:
    outside = folder.parent / "outside.safetensors"
    (folder / "model.safetensors").rename(outside)
    (folder / "model.safetensors").symlink_to(outside)
    with pytest.raises(StorageError, match="outside of the folder"):
        vet(folder)


def test_the_digests_are_compared_in_place(folder: Path) -> None:
    artifact = Artifact(folder, None, disk.digest_files(folder, "the model"), "the model")
    check_digests(artifact)
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x55")
    with pytest.raises(StorageError, match=r"the model: 'model.safetensors': digest is sha256:.* was expected"):
        check_digests(artifact)


def adapter(folder: Path, **changes: Any) -> Adapter:
    folder.mkdir()
    write_json(folder / "adapter_config.json", {"peft_type": "LORA", "r": 8, **changes})
    (folder / "adapter_model.safetensors").write_bytes(safetensors({"a": np.zeros(2, np.float32)}))
    return Adapter("legal", str(folder))


def test_an_adapter_has_a_rank(tmp_path: Path) -> None:
    assert vet_adapter(adapter(tmp_path / "a")) == 8


@pytest.mark.parametrize("changes", [{"r": 0}, {"r": 513}, {"r": "8"}, {"peft_type": "IA3"}])
def test_other_adapters_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(LoadFailed, match="the adapter legal is not a LoRA adapter with a rank r from 1 to 512"):
        vet_adapter(adapter(tmp_path / "a", **changes))


def test_a_pickled_or_damaged_adapter_is_refused(tmp_path: Path) -> None:
    made = adapter(tmp_path / "a")
    file = tmp_path / "a" / "adapter_model.safetensors"
    file.write_bytes(struct.pack("<Q", 100))
    with pytest.raises(LoadFailed, match=r"adapter legal: adapter_model.safetensors ends inside its header"):
        vet_adapter(made)
    file.rename(file.with_suffix(".bin"))
    with pytest.raises(LoadFailed, match=r"adapter legal has no file adapter_model.safetensors: convert it"):
        vet_adapter(made)
    (tmp_path / "a" / "adapter_config.json").unlink()
    with pytest.raises(LoadFailed, match=r"adapter legal has no file adapter_config.json"):
        vet_adapter(made)
