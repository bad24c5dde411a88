"""The PaddlePaddle engine with a model trained here, saved in both formats."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import ANY, EngineOptions, TensorSpec
from serving.engines.base.errors import InferenceFailed, InputRefused, LoadFailed, MissingEngine
from serving.engines.base.registry import find_format, find_loader
from serving.engines.base.warmup import warm_up
from serving.engines.child.engine import ChildEngine
from serving.engines.paddle.engine import load
from serving.engines.paddle.program import program_of
from serving.storage.base import digest as digests
from serving.storage.base.artifact import Artifact

FORMS = ("json", "pdmodel")
URI = "file:///models/m"
Load = Callable[[str], ChildEngine]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a folder for each format."""
    folder = tmp_path_factory.mktemp("paddle")
    command = [sys.executable, "-m", "tests.serving.engines.paddle_models", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


@pytest.fixture(scope="module")
def engine(models: Path) -> Iterator[Load]:
    """Load the model in one format, once."""
    loaded: dict[str, ChildEngine] = {}

    def get(form: str) -> ChildEngine:
        if form not in loaded:
            loaded[form] = load(Artifact(models / form, None, uri=URI), EngineOptions())
        return loaded[form]

    yield get
    for one in loaded.values():
        one.close()


def inputs(*x: float, index: tuple[int, ...] = (0,)) -> dict[str, Tensor]:
    return {"x": np.array(x, np.float32).reshape(-1, 1), "index": np.array(index, np.int32)}


@pytest.mark.parametrize("form", FORMS)
def test_a_trained_model_is_described_warmed_up_and_asked(models: Path, engine: Load, form: str) -> None:
    assert (models / form / f"inference.{form}").exists()
    made = engine(form)
    assert made._folder.path != models / form  # what was checked is what is loaded
    assert made.signature.platform == "paddle_inference"
    assert set(made.signature.inputs) == {TensorSpec("x", "FP32", (ANY, 1)), TensorSpec("index", "INT32", (ANY,))}
    assert [(spec.datatype, spec.shape) for spec in made.signature.outputs] == [
        ("FP32", (ANY, 1)), ("INT64", (ANY, 1)), ("FP32", (ANY, 1)),
    ]  # fmt: skip
    assert warm_up(made) is not None
    names = [spec.name for spec in made.signature.outputs]
    for x in ([0.0, 1.0, -1.0], [2.0]):  # shapes may change from call to call
        line, above, picked = made.infer(inputs(*x), names)
        np.testing.assert_allclose(line.ravel(), 2 * np.array(x) + 1, atol=0.05)
        np.testing.assert_array_equal(above, line > 0)
        assert picked.tolist() == [line[0].tolist()]
    assert [answer.dtype for answer in made.infer(inputs(1.0), names[1::-1])] == [np.int64, np.float32]


@pytest.mark.parametrize("form", FORMS)
def test_an_input_that_the_program_refuses_leaves_no_trace(engine: Load, form: str) -> None:
    made = engine(form)
    names = [spec.name for spec in made.signature.outputs]
    before = made.infer(inputs(1.0, 2.0), names)
    with pytest.raises((InputRefused, InferenceFailed)) as error:
        made.infer(inputs(1.0, 2.0, index=(99,)), names)
    assert "\n" not in str(error.value) and "/paddle/" not in str(error.value)
    for one, other in zip(made.infer(inputs(1.0, 2.0), names), before, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_verified_bytes_are_loaded(models: Path, tmp_path: Path) -> None:
    hashes = copied(models / "json", tmp_path)
    (tmp_path / "inference.json").write_bytes(b"{}")
    with pytest.raises(Exception, match="changed"):
        load(Artifact(tmp_path, None, hashes), EngineOptions())


def test_damaged_parameters_are_refused_in_one_line_without_places(models: Path, tmp_path: Path) -> None:
    copied(models / "json", tmp_path)
    (tmp_path / "inference.pdiparams").write_bytes(b"\1" * 64)
    with pytest.raises(LoadFailed, match=URI) as error:
        load(Artifact(tmp_path, None, uri=URI), EngineOptions())
    assert "\n" not in str(error.value) and str(tmp_path) not in str(error.value)


def test_a_model_is_a_folder_with_program_and_parameters(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="folder"):
        load(Artifact(Path("m.pdmodel"), b"content"), EngineOptions())
    (tmp_path / "m.pdiparams").touch()
    with pytest.raises(LoadFailed, match=r"m\.json"):
        load(Artifact(tmp_path, None), EngineOptions())


def test_an_absent_library_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "serving.engines.paddle.engine")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingEngine, match=r"pip install 'knodel\[paddle\]'"):
        find_loader(find_format("paddle", []))


def program(content: bytes) -> Any:
    return program_of("m.json", content, lambda _: None)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"{}", b"[]", b'{"program": {"regions": [{"blocks": 3}]}}'])
def test_what_is_no_program_is_refused(content: bytes) -> None:
    with pytest.raises(LoadFailed, match=r"m\.json is not a PaddlePaddle program"):
        program(content)


@pytest.mark.parametrize("name", ["1.save_combine", "1.load_", "3.py_func"])
def test_a_program_that_reaches_for_files_or_python_is_refused_however_deep_it_does(models: Path, name: str) -> None:
    whole = msgspec.json.decode((models / "json" / "inference.json").read_bytes())
    program(msgspec.json.encode(whole)).refuse_unsafe_operators()
    operators = whole["program"]["regions"][0]["blocks"][0]["ops"]
    operators.append({"#": "1.while", "regions": [{"blocks": [{"ops": [{"#": name}]}]}]})
    with pytest.raises(LoadFailed, match="--allow-code"):
        program(msgspec.json.encode(whole)).refuse_unsafe_operators()


def test_a_program_that_names_its_dialects_in_words_is_refused(models: Path) -> None:
    whole = msgspec.json.decode((models / "json" / "inference.json").read_bytes())
    whole["program"]["regions"][0]["blocks"][0]["ops"].append({"#": "pd_op.load_combine"})
    with pytest.raises(LoadFailed, match="not a PaddlePaddle program"):
        program(msgspec.json.encode(whole))


def copied(folder: Path, to: Path) -> dict[str, str]:
    """Copy the files and return their digests by name."""
    hashes = {}
    for path in folder.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
        hashes[path.name] = digests.of_bytes(path.read_bytes())
    return hashes
