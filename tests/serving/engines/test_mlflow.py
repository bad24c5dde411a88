"""MLflow model folders: which flavor is loaded, the inputs that the signature gives, and what is refused."""

from __future__ import annotations

import io
import pickle
import zipfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import onnx
import pandas as pd
import pytest
import skops.io
import xgboost

from serving.engines.base.engine import ANY, Engine, EngineOptions
from serving.engines.base.errors import EngineError, InputRefused, LoadFailed, MissingEngine
from serving.engines.base.registry import find_format, find_loader
from serving.engines.mlflow.mlmodel import Field, MLmodel
from serving.engines.mlflow.pyfunc import PyfuncEngine
from serving.storage.base.artifact import Artifact
from serving.storage.sources.local import LocalPath, fetch_local
from tests.support import mlflow_folders as folders
from tests.support.models import double
from tests.support.tabular import inputs_of, iris

URI = "file:///models/m"
COLUMN = ("FP64", (ANY,))


def load(folder: Path, name: str = "", *, allow_code: bool = False) -> Engine:
    artifact = Artifact(folder, None, uri=URI)
    return find_loader(find_format(name, artifact.names()))(artifact, EngineOptions(allow_code=allow_code))


def predict(engine: Engine, rows: Any, output: str = "output-0") -> Any:
    """One output for rows whose columns are the inputs."""
    rows = np.asarray(rows, np.float64)
    inputs = {spec.name: rows[:, at] for at, spec in enumerate(engine.signature.inputs)}
    return engine.infer(inputs, [output])[0]


def refused(folder: Path, **options: Any) -> str:
    with pytest.raises(EngineError) as caught:
        load(folder, **options)
    return str(caught.value)


def test_a_folder_is_found_by_its_mlmodel_though_it_has_files_of_other_formats(tmp_path: Path) -> None:
    engine = load(folders.write(tmp_path, other__onnx=b"x", another__txt=b"y"))
    assert inputs_of(engine) == dict.fromkeys(folders.COLUMNS, COLUMN)
    assert engine.signature.platform == "mlflow_sklearn"
    assert predict(engine, iris()[0]).tolist() == folders.classifier().predict(iris()[0]).tolist()


def test_the_folder_may_be_inside_the_artifact_and_has_a_digest(tmp_path: Path) -> None:
    folders.write(tmp_path / "artifacts" / "model")
    digest = fetch_local(LocalPath(tmp_path), URI, "").digest
    artifact = fetch_local(LocalPath(tmp_path), URI, digest)
    engine = find_loader(find_format("", artifact.names()))(artifact, EngineOptions())
    assert predict(engine, [folders.FIRST]).tolist() == [folders.expected()]


def test_a_signature_of_one_tensor_and_none_at_all_give_a_matrix(tmp_path: Path) -> None:
    sklearn = {"sklearn": folders.SKLEARN}
    for name, inputs in (("tensor", folders.MATRIX), ("none", None)):
        engine = load(folders.write(tmp_path / name, folders.mlmodel(sklearn, inputs)))
        assert inputs_of(engine) == {"input-0": ("FP64", (ANY, 4))}
        assert engine.infer({"input-0": iris()[0][:3]}, ["output-0"])[0].tolist() == [0, 0, 0]


def test_the_types_of_columns_are_the_signatures(tmp_path: Path) -> None:
    types = ("long", "integer", "float", "boolean")
    inputs = [{**one, "type": kind} for one, kind in zip(folders.DOUBLES, types, strict=True)]
    engine = load(folders.write(tmp_path, folders.mlmodel({"sklearn": folders.SKLEARN}, inputs)))
    assert [spec.datatype for spec in engine.signature.inputs] == ["INT64", "INT32", "FP32", "BOOL"]
    given = {name: np.ones(2, kind) for name, kind in zip(folders.COLUMNS, ("i8", "i4", "f4", "?"), strict=True)}
    expected = folders.classifier().predict(np.ones((2, 4)))
    assert engine.infer(given, ["output-0"])[0].tolist() == expected.tolist()


def test_predict_proba_is_what_mlflow_calls(tmp_path: Path) -> None:
    flavors = {"sklearn": folders.SKLEARN, "python_function": {**folders.PYFUNC, "predict_fn": "predict_proba"}}
    engine = load(folders.write(tmp_path, folders.mlmodel(flavors, folders.MATRIX)))
    inputs = {"input-0": iris()[0][:2]}
    first, label = engine.infer(inputs, ["output-0", "predict"])
    assert first.tolist() == folders.classifier().predict_proba(iris()[0][:2]).tolist()
    assert label.tolist() == [0, 0]


@pytest.mark.parametrize("reverse", [False, True])
def test_columns_reach_a_tree_in_the_order_in_which_it_was_trained(tmp_path: Path, reverse: bool) -> None:
    features, kinds = iris()
    names = ["a", "b c", "d", "e"]
    trees = xgboost.train({"max_depth": 2}, xgboost.DMatrix(features, kinds, feature_names=names), 2)
    leaves = lightgbm.train({"verbose": -1}, lightgbm.Dataset(features, kinds, feature_name=names), 2)
    order = names[::-1] if reverse else names
    inputs = [{"type": "double", "name": name} for name in order]
    for flavor, file, content, expected in (
        ("xgboost", "model.ubj", bytes(trees.save_raw("ubj")), trees.inplace_predict(features[:5])),
        ("lightgbm", "model.lgb", leaves.model_to_string().encode(), leaves.predict(features[:5])),
    ):
        described = folders.mlmodel({flavor: {"data": file}}, inputs)
        engine = load(folders.write(tmp_path / flavor, described, **{file.replace(".", "__"): content}))
        rows = features[:5, ::-1] if reverse else features[:5]
        assert predict(engine, rows).tolist() == np.asarray(expected).tolist()
        other = folders.mlmodel({flavor: {"data": file}}, [{"type": "double", "name": f"x{at}"} for at in range(4)])
        (tmp_path / flavor / "MLmodel").write_bytes(other)
        assert "the columns of the signature are not those of the model, 'a'" in refused(tmp_path / flavor)


def test_an_onnx_model_gets_its_own_type(tmp_path: Path) -> None:
    described = folders.mlmodel(
        {"onnx": {"data": "model.onnx"}}, [{"type": "tensor", "tensor-spec": {"dtype": "float64", "shape": [-1]}}]
    )
    engine = load(folders.write(tmp_path, described, model__onnx=double()))
    assert inputs_of(engine) == {"x": ("FP64", (ANY,))}
    assert engine.infer({"x": np.array([1.0, 2.5])}, ["y"])[0].tolist() == [2.0, 5.0]


def test_a_number_that_the_models_type_cannot_hold_is_refused(tmp_path: Path) -> None:
    tensor = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["n"], ["y"])], "g",
        [tensor("n", onnx.TensorProto.INT32, [None])], [tensor("y", onnx.TensorProto.INT32, [None])],
    )  # fmt: skip
    content = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    described = folders.mlmodel({"onnx": {"data": "model.onnx"}}, [{"type": "double", "name": "n"}])
    engine = load(folders.write(tmp_path, described, model__onnx=content.SerializeToString()))
    assert engine.infer({"n": np.array([3.0])}, ["y"])[0].tolist() == [3]
    for number in (1.7, np.nan, 2.0**40):
        with pytest.raises(InputRefused, match="input 'n' of the model is INT32, which cannot hold these numbers"):
            engine.infer({"n": np.array([number])}, ["y"])


def test_a_pickled_model_is_loaded_only_where_code_is_allowed(tmp_path: Path) -> None:
    flavors = {"sklearn": {"pickled_model": "model.pkl", "serialization_format": "cloudpickle"}}
    folder = folders.write(
        tmp_path, folders.mlmodel(flavors, folders.DOUBLES), model__pkl=pickle.dumps(folders.classifier())
    )
    said = refused(folder)
    assert (
        "model.pkl of flavor sklearn may run code when it is loaded: log it with serialization_format='skops'" in said
    )
    assert "--format pyfunc" in said or "format pyfunc" in said
    assert "runs code of the artifact" in refused(folder, name="pyfunc")
    for name in ("", "pyfunc"):
        engine = load(folder, name, allow_code=True)
        assert predict(engine, [folders.FIRST]).tolist() == [folders.expected()]


def test_a_folder_with_only_python_function_needs_mlflow_and_consent(tmp_path: Path) -> None:
    flavors = {"python_function": {"loader_module": "mlflow.pyfunc.model", "python_model": "python_model.pkl"}}
    folder = folders.write(tmp_path, folders.mlmodel(flavors, folders.DOUBLES))
    assert "the flavors sklearn, xgboost, lightgbm, onnx are served; to run the code of python_function" in refused(
        folder
    )
    try:
        load(folder, "pyfunc", allow_code=True)
    except MissingEngine as error:
        assert "pip install 'knodel[mlflow]'" in str(error)
    except LoadFailed as error:
        assert "mlflow cannot load the model" in str(error)


class Years:
    """What `mlflow.pyfunc` loads, seen from outside."""

    def predict(self, frame: Any, params: Any = None) -> Any:
        return frame["at"].dt.year.to_numpy()


def test_a_text_that_is_no_time_is_the_callers_fault() -> None:
    field = Field("at", "datetime", "BYTES")
    engine = PyfuncEngine(Years(), MLmodel({}, (field,), (Field("year", "long", "INT64"),)), ExitStack())
    given = np.array(["2026-01-01", "2027-01-02T03:04:05"], object)
    assert engine.infer({"at": given}, ["year"])[0].tolist() == [2026, 2027]
    with pytest.raises(InputRefused, match="input 'at' has a text that is not a time"):
        engine.infer({"at": np.array(["soon"], object)}, ["year"])


@pytest.mark.parametrize("kinds", ["numbers", "texts"])
def test_a_wrapper_of_lightgbm_is_read_without_its_code(tmp_path: Path, kinds: str) -> None:
    features, classes = iris()
    labels = classes if kinds == "numbers" else np.array(["x", "y", "z"])[classes]
    wrapper = lightgbm.LGBMClassifier(n_estimators=3, verbose=-1).fit(features, labels)
    described = folders.mlmodel({"lightgbm": {"data": "model.skops"}}, folders.DOUBLES)
    engine = load(folders.write(tmp_path, described, model__skops=bytes(skops.io.dumps(wrapper))))
    assert predict(engine, features).tolist() == np.asarray(wrapper.predict(features)).tolist()
    assert predict(engine, features, "probabilities").tolist() == np.asarray(wrapper.predict_proba(features)).tolist()


def test_a_regressor_of_lightgbm_and_wrappers_that_need_their_code(tmp_path: Path) -> None:
    features, kinds = iris()
    described = folders.mlmodel({"lightgbm": {"data": "model.skops"}}, folders.DOUBLES)

    def folder(name: str, model: Any) -> Path:
        return folders.write(tmp_path / name, described, model__skops=bytes(skops.io.dumps(model)))

    whole = lightgbm.LGBMRegressor(n_estimators=3, verbose=-1).fit(features, kinds)
    assert predict(load(folder("whole", whole)), features).tolist() == np.asarray(whole.predict(features)).tolist()
    early = lightgbm.LGBMRegressor(n_estimators=3, verbose=-1).fit(
        features,
        kinds,
        eval_X=(features[:50].copy(),),
        eval_y=(kinds[:50],),
        callbacks=[lightgbm.early_stopping(2, verbose=False)],
    )
    for name, model in (("early", early), ("sklearn", folders.classifier())):
        said = refused(folder(name, model))
        assert "log its booster_, or name the format pyfunc" in said
    loaded = load(tmp_path / "early", allow_code=True)
    assert predict(loaded, features).tolist() == np.asarray(early.predict(features)).tolist()
    (tmp_path / "sklearn" / "model.skops").write_bytes(b"no archive")
    assert "is not a wrapper of LightGBM that can be read" in refused(tmp_path / "sklearn")


def test_a_booster_of_lightgbm_with_categories_of_a_frame_is_refused(tmp_path: Path) -> None:
    features, kinds = iris()
    frame = pd.DataFrame({"kind": pd.Categorical([(10, 20, 30)[kind] for kind in kinds]), "width": features[:, 0]})
    booster = lightgbm.LGBMRegressor(n_estimators=1, verbose=-1).fit(frame, kinds).booster_
    columns = [{"type": "long", "name": "kind"}, {"type": "double", "name": "width"}]
    described = folders.mlmodel({"lightgbm": {"data": "model.lgb"}}, columns)
    folder = folders.write(tmp_path, described, model__lgb=booster.model_to_string().encode())
    assert "model.lgb has categories of a data frame, which are not those of requests" in refused(folder)


def test_labels_of_a_lightgbm_wrapper_that_are_no_json_are_refused(tmp_path: Path) -> None:
    features, kinds = iris()
    wrapper = lightgbm.LGBMClassifier(n_estimators=1, verbose=-1).fit(features, kinds)
    dates, made = io.BytesIO(), io.BytesIO()
    np.save(dates, np.array(["2026-01-01", "2026-01-02", "2026-01-03"], "datetime64[D]"))
    with zipfile.ZipFile(io.BytesIO(skops.io.dumps(wrapper))) as given, zipfile.ZipFile(made, "w") as written:
        for name in given.namelist():
            written.writestr(name, dates.getvalue() if name.endswith(".npy") else given.read(name))
    described = folders.mlmodel({"lightgbm": {"data": "model.skops"}}, folders.DOUBLES)
    assert "is not a wrapper of LightGBM that can be read" in refused(
        folders.write(tmp_path, described, model__skops=made.getvalue())
    )


SKLEARN_ONLY = {"sklearn": folders.SKLEARN}
TEXTS = [{**folders.DOUBLES[0], "type": "string"}, *folders.DOUBLES[1:]]
TEXT_COLUMN = [{**folders.DOUBLES[0], "type": "array", "items": {"type": "double"}}, *folders.DOUBLES[1:]]


@pytest.mark.parametrize(
    ("described", "message"),
    [
        (b"\xff", "MLmodel is not UTF-8"),
        (b"flavors: {}", "MLmodel has no flavors"),
        (b"[1]", "MLmodel has no flavors"),
        (b"flavors: {sklearn: 1}", "a flavor without settings"),
        (b"flavors: &a {b: *a}", "MLmodel"),
        (b"flavors: !!python/object/apply:os.system [id]", "MLmodel"),
        (b"a: &a [x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n" * 3, "MLmodel"),
        (b"x" * (1 << 20) + b"y", "more than 1048576"),
        (folders.mlmodel({"spark": {"model_data": "sparkml"}}), "MLmodel has the flavors spark: the flavors sklearn, "),
        (folders.mlmodel({"sklearn": {}}), "flavor sklearn of MLmodel has no pickled_model"),
        (folders.mlmodel({"sklearn": {"pickled_model": "../x"}}), "'../x', which is not a file of the model's folder"),
        (folders.mlmodel({"sklearn": {"pickled_model": "/etc/passwd"}}), "not a file of the model's folder"),
        (folders.mlmodel({"xgboost": {"data": "gone.ubj"}}), "data of flavor xgboost is 'gone.ubj'"),
        (b"flavors: {onnx: {data: a}}\nsignature: []x", "MLmodel"),
        (b"flavors: {onnx: {data: a}}\nsignature: 3", "signature of MLmodel is not a mapping"),
        (b"flavors: {onnx: {data: a}}\nsignature: {inputs: 3}", "signature.inputs of MLmodel is not JSON"),
        (b"flavors: {onnx: {data: a}}\nsignature: {inputs: '[{}]'}", "missing required field `type`"),
        (folders.mlmodel(SKLEARN_ONLY, folders.DOUBLES[:1] * 2), "names that are repeated or missing"),
        (folders.mlmodel(SKLEARN_ONLY, folders.DOUBLES[:3]), "has 3 columns, and the model expects 'input-0'"),
        (folders.mlmodel(SKLEARN_ONLY, TEXTS), "input 'sepal length (cm)' is BYTES in the signature, and the model"),
        (folders.mlmodel(SKLEARN_ONLY, TEXT_COLUMN), "is of type 'array', which only the flavor python_function"),
        (
            folders.mlmodel(SKLEARN_ONLY, [{"type": "tensor", "tensor-spec": {"dtype": "float64", "shape": [-1, 5]}}]),
            "the signature has a tensor of shape [-1, 5], and the model expects [-1, 4]",
        ),
    ],
)
def test_what_cannot_be_served_is_refused(tmp_path: Path, described: bytes, message: str) -> None:
    said = refused(folders.write(tmp_path, described))
    assert message in said
    assert "\n" not in said and str(tmp_path) not in said
