"""Weights of Hugging Face in the real PyTorch: each task against the ONNX export of the same model, and a server."""

from __future__ import annotations

import base64
import importlib.util
import io
import json
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from serving.engines.base.engine import EngineOptions
from serving.engines.base.errors import InferenceFailed, LoadFailed
from serving.engines.child.engine import ChildEngine
from serving.engines.huggingface.engine import AT_ONCE, HuggingFaceEngine, as_objects, load
from serving.engines.huggingface.graph import load_engine
from tests.long.served import served
from tests.support.huggingface_folders import WORDS, artifact

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed: `make test-torch`"
)
MANY = [WORDS[at % len(WORDS)] for at in range(AT_ONCE + 3)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the folders of each task."""
    folder = tmp_path_factory.mktemp("pytorch")
    subprocess.run([sys.executable, "-m", "tests.long.pytorch_models", str(folder)], check=True)
    return folder


@pytest.fixture
def folder(models: Path, tmp_path: Path) -> Path:
    """Return the folder of a classifier that a test may change."""
    return Path(shutil.copytree(models / "text-classification" / "torch", tmp_path / "m"))


def loaded(folder: Path) -> HuggingFaceEngine:
    return load(artifact(folder), EngineOptions())


def picture(colour: tuple[int, int, int]) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (20, 10), colour).save(content, "PNG")
    return content.getvalue()


@pytest.mark.parametrize(
    ("task", "inputs"),
    [
        ("text-classification", {"text": as_objects(MANY)}),
        ("text-classification", {"text": as_objects(MANY), "text_pair": as_objects(MANY[::-1])}),
        ("token-classification", {"text": as_objects(MANY)}),
        ("fill-mask", {"text": as_objects(["the [MASK] sat", "a good [MASK]"]), "top_k": np.array([3])}),
        ("feature-extraction", {"text": as_objects(MANY)}),
        ("image-classification", {"image": as_objects([picture((250, 0, 0)), picture((0, 250, 90))])}),
    ],
)
def test_the_results_are_those_of_the_onnx_export(task: str, inputs: dict[str, Any], models: Path) -> None:
    with closing(loaded(models / task / "torch")) as torch, closing(loaded(models / task / "onnx")) as onnx:
        assert torch.signature == onnx.signature
        names = [spec.name for spec in torch.signature.outputs]
        for name, found, expected in zip(names, torch.infer(inputs, names), onnx.infer(inputs, names), strict=True):
            if name in ("entities", "candidates"):
                assert [rounded(json.loads(one)) for one in found] == [rounded(json.loads(one)) for one in expected]
            elif found.dtype == object:
                assert found.tolist() == expected.tolist() and len(found)
            else:
                np.testing.assert_allclose(found, expected, atol=1e-5)


def rounded(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "score": round(row["score"], 4)} for row in rows]


def test_shards_in_bfloat16_are_computed_in_bfloat16(models: Path) -> None:
    folder = models / "shards" / "torch"
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    with closing(loaded(folder)) as engine:
        label, shares = engine.infer({"text": as_objects(WORDS)}, ["label", "probabilities"])
    assert set(label) <= {"LABEL_0", "LABEL_1", "LABEL_2"}
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-5)


def test_a_process_that_ends_is_started_again(models: Path) -> None:
    engine = load_engine(artifact(models / "feature-extraction" / "torch"), EngineOptions())
    assert isinstance(engine, ChildEngine) and engine._child is not None
    with closing(engine):
        ids = np.array([[2, 7, 3]])
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        (first,) = engine.infer(inputs, ["last_hidden_state"])
        engine._child.kill()
        with pytest.raises(InferenceFailed, match="the process of the model ended"):
            engine.infer(inputs, ["last_hidden_state"])
        np.testing.assert_array_equal(engine.infer(inputs, ["last_hidden_state"])[0], first)


def test_a_decoder_needs_its_padding_token(models: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(models / "decoder" / "torch", tmp_path / "m"))
    with pytest.raises(LoadFailed, match="padding token"):
        loaded(folder)
    changed(folder, pad_token_id=0)
    with closing(loaded(folder)) as engine:
        both = engine.infer({"text": as_objects(["a film", "the cat sat on the mat"])}, ["probabilities"])[0]
        alone = engine.infer({"text": as_objects(["a film"])}, ["probabilities"])[0]
    np.testing.assert_allclose(both[:1], alone, atol=1e-5)


def changed(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"architectures": ["BertForMaskedLM"]}, "the weights have no .*, which a BertForMaskedLM needs"),
        ({"model_type": "nosuch"}, "has no model of the type 'nosuch': update it"),
        ({"model_type": "vit"}, "no vit for text-classification: export it"),
        ({"hidden_size": 32}, "transformers cannot load"),
        ({"vocab_size": "many"}, "transformers cannot load"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused(changes: dict[str, Any], reason: str, folder: Path) -> None:
    changed(folder, **changes)
    with pytest.raises(LoadFailed, match=reason):
        loaded(folder)


def test_code_of_the_folder_never_runs(folder: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    (folder / "modeling.py").write_text(f"open({str(mark)!r}, 'w')\nclass M: pass\n")
    changed(folder, attn_implementation="author/kernel", transformers_weights="pytorch_model.bin")
    (folder / "pytorch_model.bin").write_bytes(b"cposix\nsystem\n(S'touch " + str(mark).encode() + b"'\ntR.")
    with closing(loaded(folder)) as engine:
        assert engine.infer({"text": as_objects(["a"])}, ["label"])[0].shape == (1,)
    changed(folder, auto_map={"AutoModelForSequenceClassification": "modeling.M"})
    with pytest.raises(LoadFailed, match="auto_map"):
        loaded(folder)
    assert not mark.exists()


def test_servers_answer_embeddings_and_rerank(models: Path, tmp_path: Path) -> None:
    with served(tmp_path / "log", str(models / "feature-extraction" / "torch")) as server:
        body = json.dumps({"input": WORDS, "encoding_format": "base64"}).encode()
        found = server.ask("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
        vectors = [np.frombuffer(base64.b64decode(one["embedding"]), np.float32) for one in found["data"]]
        np.testing.assert_allclose([np.linalg.norm(vector) for vector in vectors], 1, rtol=1e-5)
        assert found["usage"]["total_tokens"] > len(WORDS)
    with served(tmp_path / "log", str(models / "rerank" / "torch")) as server:
        body = json.dumps({"query": "a good film", "documents": WORDS, "top_n": 2}).encode()
        found = server.ask("POST", "/v1/rerank", body, {"Content-Type": "application/json"})
        scores = [one["relevance_score"] for one in found["results"]]
        assert len(scores) == 2 and scores == sorted(scores, reverse=True)
