"""The detection of formats and the loading of their engines."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from serving.engines.base.engine import EngineOptions
from serving.engines.base.errors import LoadFailed, MissingEngine, UnknownFormat
from serving.engines.base.registry import FORMATS, ModelFormat, find_format, find_loader, is_installed
from serving.storage.base.artifact import Artifact

CODE = [name for name, made in FORMATS.items() if made.runs_code]


@pytest.mark.parametrize(
    ("files", "name"),
    [
        (["readme.md", "deep/Model.ONNX"], "onnx"),
        (["iris.skops", "conda.yaml"], "sklearn"),
        (["model.ubj"], "xgboost"),
        (["iris.xgb"], "xgboost"),
        (["model.json", "metadata.yaml"], "xgboost"),
        (["1/model.txt"], "lightgbm"),
        (["iris.lgb"], "lightgbm"),
        (["inference.pdmodel", "inference.pdiparams"], "paddle"),
        (["inference.json", "inference.pdiparams", "inference.yml"], "paddle"),
        (["model.json", "model.pdiparams"], "paddle"),
        (["saved_model.pb", "variables/variables.index"], "tensorflow"),
        (["model.onnx", "model.py", "model.pkl"], "onnx"),
        (["config.json", "model-00001-of-00002.safetensors", "tokenizer.json"], "vllm"),
        (["config.json", "model.safetensors", "onnx/model.onnx"], "onnx"),
    ],
)
def test_a_format_is_found_by_the_files(files: list[str], name: str) -> None:
    assert find_format("", files).name == name


@pytest.mark.bad_input("artifact-headers")
@pytest.mark.parametrize(
    "files", [["config.json"], ["model.safetensors"], ["notes.txt"], ["my_saved_model.pb"], ["supermodel.json"], []]
)
def test_what_only_looks_like_a_format_is_refused_with_what_is_known(files: list[str]) -> None:
    with pytest.raises(UnknownFormat, match=r"\.onnx, \.skops.*with --format, .*, one of onnx, sklearn"):
        find_format("", files)


def test_a_format_is_installed_with_its_library_or_its_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_installed(FORMATS["onnx"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not is_installed(FORMATS["vllm"])
    (tmp_path / "vllm").touch(0o755)
    assert is_installed(FORMATS["vllm"])
    (tmp_path / "no_such_library").touch(0o755)
    assert not is_installed(ModelFormat("made", "made", "no_such_library", "made", ()))


def test_files_of_two_formats_are_not_chosen_from() -> None:
    with pytest.raises(UnknownFormat, match="onnx and of sklearn: name the format with --format"):
        find_format("", ["model.onnx", "model.skops"])
    assert find_format("sklearn", ["model.onnx", "model.skops"]).name == "sklearn"


@pytest.mark.parametrize("name", FORMATS)
def test_a_named_format_is_taken_whatever_the_files(name: str) -> None:
    assert find_format(name, ["anything"]).name == name


def test_a_name_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(UnknownFormat, match=r"'catboost'.*onnx, sklearn"):
        find_format("catboost", ["model.onnx"])


@pytest.mark.bad_input("artifact-code")
@pytest.mark.parametrize(
    ("files", "name"),
    [(["m.pkl"], "pickle"), (["m.pickle"], "pickle"), (["m.joblib"], "joblib"), (["model.py"], "python")],
)
def test_a_format_that_runs_code_is_never_found_but_named(files: list[str], name: str) -> None:
    with pytest.raises(UnknownFormat, match=f"looks like {name}, which runs code .*: start .* {name} --allow-code;"):
        find_format("", files)
    with pytest.raises(
        UnknownFormat, match=f"looks like {name}, which runs code .*: name the format with --format {name}$"
    ):
        find_format("", files, allow_code=True)


@pytest.mark.bad_input("artifact-code")
@pytest.mark.parametrize("name", CODE)
def test_a_format_that_runs_code_is_loaded_only_where_that_is_allowed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[Any] = []
    module = SimpleNamespace(load=lambda artifact, options: loaded.append(artifact))
    monkeypatch.setattr(importlib, "import_module", lambda _: module)
    load = find_loader(FORMATS[name])
    artifact = Artifact(Path("m"), b"", uri="file:///m")
    with pytest.raises(LoadFailed, match=f"{name} runs code .*knodel.dev/allow-code.*--allow-code"):
        load(artifact, EngineOptions())
    assert not loaded
    load(artifact, EngineOptions(allow_code=True))
    assert loaded == [artifact]


def test_only_what_is_named_runs_code() -> None:
    assert CODE == ["pickle", "joblib", "python", "ray", "pyfunc"]


def test_a_missing_library_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "colorsys", None)
    with pytest.raises(MissingEngine, match=r"pip install 'knodel\[x\]'"):
        find_loader(ModelFormat("x", "colorsys", "colorsys", "x", (".x",)))


def test_a_library_that_the_engines_library_needs_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "serving.engines.sklearn.pickled", raising=False)
    monkeypatch.setitem(sys.modules, "joblib", None)
    with pytest.raises(MissingEngine, match=r"pickle needs joblib.*pip install 'knodel\[sklearn\]'"):
        find_loader(find_format("pickle", []))


def test_a_missing_module_of_our_own_is_no_library() -> None:
    with pytest.raises(ModuleNotFoundError):
        find_loader(ModelFormat("x", "serving.engines.nothing", "x", "x", (".x",)))


def test_a_library_without_what_it_needs_of_the_system_says_what(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "needy.py").write_text("raise OSError('libgomp.so.1: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingEngine, match=r"libgomp\.so\.1"):
        find_loader(ModelFormat("x", "needy", "needy", "x", (".x",)))


def test_choosing_an_engine_imports_none() -> None:
    script = (
        "import sys; from serving.engines.base.registry import find_format; from serving.modelserver import preload;"
        "find_format('onnx', []); find_format('', ['m.skops']); preload(['--format', 'onnx']);"
        "print([name for name in ('onnxruntime', 'sklearn', 'numpy', 'starlette', 'uvicorn') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
