"""Triton repositories: which version of which model is served, and with which tensors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest
import xgboost
from tritonclient.grpc.model_config_pb2 import ModelConfig

from serving.engines.base.engine import Engine, EngineOptions, TensorSpec
from serving.engines.base.errors import LoadFailed
from serving.engines.base.registry import find_format, find_loader
from serving.engines.layouts import triton_config
from serving.engines.layouts.detect import find_layout
from serving.engines.layouts.layout import BatchHint, Layout
from serving.engines.layouts.triton_config import read_config
from serving.storage.fetch import fetch
from tests.support import tabular
from tests.support.models import FLOAT, floats, model, node, value

INPUT = 'input { name: "x" data_type: TYPE_FP32 dims: [ 2 ] }'
OUTPUT = 'output { name: "y" data_type: TYPE_FP32 dims: [ 2 ] }'
CONFIG = f'backend: "onnxruntime" max_batch_size: 8 {INPUT} {OUTPUT}'


def onnx(factor: float = 2) -> bytes:
    """FP32 x [n, 2] → y = x · factor, and z = y + y."""
    return model(
        [node("Mul", ["x", "factor"], ["y"]), node("Add", ["y", "y"], ["z"])],
        [value("x", FLOAT, ["n", 2])],
        [value("y", FLOAT, ["n", 2]), value("z", FLOAT, ["n", 2])],
        [floats("factor", [factor])],
    )


def repository(folder: Path, **files: bytes | str) -> Path:
    """Write files, in whose names `__` is a slash and `_dot_` a dot."""
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def layout_of(folder: Path, name: str = "m") -> Layout:
    return find_layout(fetch(folder.as_uri(), "", folder.parent / "cache", frozenset()), name)


def loaded(folder: Path, name: str = "m") -> Engine:
    """Return the engine of a folder, as the server loads it."""
    layout = layout_of(folder, name)
    load = find_loader(find_format(layout.format, layout.artifact.names()))
    return layout.adapt(load(layout.artifact, EngineOptions()))


def factor_of(folder: Path, name: str = "m") -> float:
    """Return by which number the served version multiplies."""
    engine = loaded(folder, name)
    (result,) = engine.infer({"x": np.ones((1, 2), np.float32)}, ["y"])
    return float(result[0, 0])


def refusal(folder: Path, name: str = "m") -> str:
    with pytest.raises(LoadFailed) as refused:
        loaded(folder, name)
    return str(refused.value)


def test_every_field_of_tritons_schema_has_a_rule() -> None:
    rules: list[Any] = [triton_config.READ, triton_config.IGNORED, triton_config.REFUSED]
    assert sorted(name for rule in rules for name in rule) == sorted(ModelConfig.DESCRIPTOR.fields_by_name)


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        ("", 10),
        ("version_policy { latest { num_versions: 2 } }", 10),
        ("version_policy { all { } }", 10),
        ("version_policy { specific { versions: [ 1, 2 ] } }", 2),
        ("version_policy { specific { versions: 1 } }", 1),
    ],
)
def test_the_newest_version_that_the_policy_allows_is_served(tmp_path: Path, policy: str, served: int) -> None:
    versions = {f"{number}__model_dot_onnx": onnx(number) for number in (1, 2, 10)}
    versions["011__model_dot_onnx"] = onnx(11)  # no version: Triton's numbers have no leading zeros
    assert factor_of(repository(tmp_path / "m", config_dot_pbtxt=f"{CONFIG} {policy}", **versions)) == served


def test_a_repository_of_one_model_or_with_the_models_name_is_served(tmp_path: Path) -> None:
    folder = repository(tmp_path / "all", left__config_dot_pbtxt=CONFIG, left__1__model_dot_onnx=onnx(3))
    assert factor_of(folder, "any") == 3
    repository(folder, my_right__config_dot_pbtxt=CONFIG, my_right__1__model_dot_onnx=onnx(4))
    assert factor_of(folder, "my-right") == 4
    assert factor_of(folder, "left") == 3
    assert "is a repository of 2 models (left, my_right), none of them named 'any'" in refusal(folder, "any")


def test_names_and_sizes_of_the_config_are_served(tmp_path: Path) -> None:
    engine = loaded(repository(tmp_path / "m", config_dot_pbtxt=CONFIG, **{"1__model_dot_onnx": onnx()}))
    assert engine.signature.inputs == (TensorSpec("x", "FP32", (-1, 2)),)
    assert engine.signature.outputs == (TensorSpec("y", "FP32", (-1, 2)),)  # z is left out, as in Triton
    assert engine.bounded


def test_a_reshape_changes_each_row(tmp_path: Path) -> None:
    reshaped = """
        backend: "onnxruntime" max_batch_size: 4
        input { name: "x" data_type: TYPE_FP32 dims: [ 1, 2, 1 ] reshape { shape: [ 2 ] } }
        output { name: "y" data_type: TYPE_FP32 dims: [ 2, 1 ] reshape { shape: [ 2 ] } }
    """
    engine = loaded(repository(tmp_path / "m", config_dot_pbtxt=reshaped, **{"1__model_dot_onnx": onnx()}))
    assert engine.signature.inputs[0].shape == (-1, 1, 2, 1)
    (result,) = engine.infer({"x": np.array([[[[1], [2]]], [[[3], [4]]]], np.float32)}, ["y"])
    assert result.tolist() == [[[2], [4]], [[6], [8]]]


@pytest.mark.parametrize(
    ("batching", "expected"),
    [
        ("", None),
        ("dynamic_batching { }", BatchHint(8, 0.0)),
        (
            "dynamic_batching { preferred_batch_size: [ 2, 4 ] max_queue_delay_microseconds: 500 }",
            BatchHint(4, 0.0005),
        ),
        ("dynamic_batching { max_queue_delay_microseconds: 5000000 }", BatchHint(8, 1.0)),
    ],
)
def test_dynamic_batching_is_the_default_of_the_models(
    tmp_path: Path, batching: str, expected: BatchHint | None
) -> None:
    folder = repository(tmp_path / "m", config_dot_pbtxt=CONFIG + batching, **{"1__model_dot_onnx": onnx()})
    assert layout_of(folder).batching == expected
    assert read_config(f'name: "m" {batching}'.encode()).dynamic_batching is None  # without a batch dimension


@pytest.mark.bad_input("artifact-description")
@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ('backend: "python"', "backend 'python' is not served: TritonPythonModel is another interface"),
        ('platform: "pytorch_libtorch"', "backend 'pytorch_libtorch' is not served: export the model to ONNX"),
        ('platform: "tensorrt_plan"', "backend 'tensorrt_plan' is not served: serve the ONNX file"),
        ('platform: "ensemble" ensemble_scheduling { }', "ensemble_scheduling is not supported (serve each"),
        ("sequence_batching { }", "sequence_batching is not supported"),
        ("model_transaction_policy { decoupled: true }", "model_transaction_policy is not supported"),
        ("max_batch: 3", "unknown field 'max_batch'"),
        ("max_batch_size: -1", "max_batch_size must be 0 to"),
        ("max_batch_size: 'x'", "max_batch_size must be a whole number"),
        ("platform: m", "platform must be a text in quotes"),
        ("input { dims: 1 }", "an input has no name"),
        ('input { name: "x" data_type: FP32 }', "input 'x': data_type 'FP32' is not one of TYPE_BOOL"),
        ('input { name: "x" data_type: TYPE_FP32 optional: true }', "input 'x': optional is not supported"),
        ('default_model_filename: "../x"', "default_model_filename '../x' must be a name in the folder"),
        ("version_policy { specific { versions: 7 } }", "there is none of the versions (7,)"),
        ("version_policy { latest { } all { } }", "version_policy must be one of latest, all, specific"),
        ("input {", "line 1: expected a field name, not the end of the file"),
        (CONFIG + 'input { name: "x" data_type: TYPE_FP32 dims: 2 }', "input 'x' is described twice"),
        (CONFIG.replace('"x"', '"a"'), "the model has no input 'a': use 'x'"),
        (CONFIG.replace("[ 2 ]", "[ 3 ]", 1), "input 'x' is [-1, 2] in the model, and [-1, 3] in the config"),
        (CONFIG.replace("TYPE_FP32", "TYPE_INT64", 1), "input 'x' is FP32 in the model, and INT64 in the config"),
        (CONFIG.replace("max_batch_size: 8", ""), "and [2] in the config with its batch dimension"),
        ('backend: "fil" parameters { key: "model_type" value { string_value: "treelite" } }', "model_type 'treelite'"),
    ],
)
def test_a_config_that_cannot_be_served_is_refused(tmp_path: Path, config: str, reason: str) -> None:
    folder = repository(tmp_path / "m", config_dot_pbtxt=config, **{"1__model_dot_onnx": onnx()})
    message = refusal(folder)
    assert message.startswith(f"{folder.as_uri()}: config.pbtxt: ")
    assert reason in message


@pytest.mark.bad_input("artifact-description")
def test_a_config_that_is_too_large_or_no_text_is_refused(tmp_path: Path) -> None:
    folder = repository(tmp_path / "m", config_dot_pbtxt=b"#" * (1 << 20 | 1), **{"1__model_dot_onnx": onnx()})
    assert refusal(folder).endswith("has more than 1 MiB")
    repository(folder, config_dot_pbtxt=b"\xff")
    assert refusal(folder).endswith("is not UTF-8")


def test_the_named_file_of_several_is_served(tmp_path: Path) -> None:
    folder = repository(
        tmp_path / "m",
        config_dot_pbtxt=f'{CONFIG} default_model_filename: "b.onnx"',
        **{"1__a_dot_onnx": onnx(3), "1__b_dot_onnx": onnx(4)},
    )
    assert factor_of(folder) == 4


def parameters(**given: str) -> str:
    return " ".join(
        f'parameters {{ key: "{name}" value {{ string_value: "{text}" }} }}' for name, text in given.items()
    )


def forest(kind: str, dims: int, datatype: str = "TYPE_FP32", **more: str) -> str:
    return f"""
        backend: "fil" max_batch_size: 32768
        input {{ name: "input__0" data_type: TYPE_FP32 dims: [ 4 ] }}
        output {{ name: "output__0" data_type: {datatype} dims: [ {dims} ] }}
        {parameters(model_type=kind, **more)}
    """


def answer_of(folder: Path, features: Any) -> Any:
    engine = loaded(folder)
    assert [spec.name for spec in (*engine.signature.inputs, *engine.signature.outputs)] == ["input__0", "output__0"]
    (result,) = engine.infer({"input__0": features.astype(np.float32)}, ["output__0"])
    assert result.shape[1:] == engine.signature.outputs[0].shape[1:]  # type: ignore[index]
    return result


@pytest.fixture(scope="module")
def boosters() -> Sequence[Any]:
    """Return features, an XGBoost booster and a LightGBM booster of two kinds."""
    features, kinds = tabular.two_kinds()
    options = {"objective": "binary:logistic", "nthread": 1}
    small = {"objective": "binary", "num_threads": 1, "verbose": -1}
    return (
        features,
        xgboost.train(options, xgboost.DMatrix(features, kinds), 5),
        lightgbm.train(small, lightgbm.Dataset(features, kinds), 5),
    )


@pytest.mark.parametrize("kind", ["xgboost_json", "xgboost_ubj", "lightgbm"])
def test_trees_have_the_results_that_the_parameters_select(tmp_path: Path, boosters: Sequence[Any], kind: str) -> None:
    features, by_xgboost, by_lightgbm = boosters
    if kind == "lightgbm":
        ones, files = by_lightgbm.predict(features), {"1__model_dot_txt": by_lightgbm.model_to_string()}
    else:
        ones = by_xgboost.predict(xgboost.DMatrix(features))
        files = {f"1__{kind.replace('_', '_dot_')}": bytes(by_xgboost.save_raw(kind.removeprefix("xgboost_")))}
    folder = repository(tmp_path / "m", config_dot_pbtxt=forest(kind, 2, predict_proba="true"), **files)
    np.testing.assert_allclose(answer_of(folder, features), np.stack([1 - ones, ones], axis=1), rtol=1e-5)
    repository(folder, config_dot_pbtxt=forest(kind, 1, output_class="true", threshold="0.6"))
    np.testing.assert_array_equal(answer_of(folder, features), (ones > 0.6)[:, None])
    for config, reason in (
        (forest(kind, 2, "TYPE_INT32", predict_proba="true"), "is FP32 in the model, and INT32 in the config"),
        (forest(kind, 1) + 'input { name: "b" data_type: TYPE_FP32 dims: 4 }', "the model has one input: describe one"),
    ):
        repository(folder, config_dot_pbtxt=config)
        assert reason in refusal(folder).replace("FP64", "FP32")
    repository(folder, config_dot_pbtxt=forest(kind, 1, output_class="false"))
    np.testing.assert_allclose(answer_of(folder, features), ones[:, None], rtol=1e-5)
