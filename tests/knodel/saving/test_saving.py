"""Objects in memory become files, which the real engines load: the results are those of the object."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import onnx
import pandas as pd
import pytest
import xgboost
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from knodel.saving.errors import NotSaved
from knodel.saving.save import Saved, save
from serving.engines.base.engine import Engine, EngineOptions
from serving.engines.base.registry import find_format, find_loader
from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.codec.protocol_v2 import V2Codec
from serving.modelserver.execution.example import decode_example, read_example
from serving.storage.base.artifact import Artifact
from tests.support.models import double, times
from tests.support.tabular import ask, iris, two_kinds

X, Y = iris()
PEOPLE = pd.DataFrame({"age": [20.0, 30, 40, 50], "city": ["Bern", "Bonn", "Bern", "Bonn"]})
TREES: dict[str, Any] = {"n_estimators": 3, "n_jobs": 1}
CATEGORIES = pd.DataFrame({"kind": pd.Categorical([(10, 20, 30)[kind] for kind in Y]), "width": X[:, 0]}), Y


def served(saved: Saved) -> Engine:
    """Load a saved model as the model server does, and check that it accepts the saved example."""
    files = [path.name for path in saved.path.iterdir()]
    named = saved.model_format if saved.runs_code else ""
    found = find_format(named, files)
    assert found.name == saved.model_format
    artifact = Artifact(saved.path, None)
    engine = find_loader(found)(artifact, EngineOptions(allow_code=saved.runs_code))
    if saved.inputs is not None:
        assert saved.inputs == engine.signature.inputs
    if saved.example is not None:
        content = read_example(artifact, 1 << 20)
        assert content == saved.example.read_bytes()
        inputs = decode_example(content, V2Codec("m", "1", engine.signature, ServerLimits()), "m")
        engine.infer(inputs, engine.signature.default_outputs)
    return engine


def lightgbm_classifier(labels: Any = Y) -> lightgbm.LGBMClassifier:
    return lightgbm.LGBMClassifier(**TREES, verbose=-1).fit(X, labels)


def test_a_pipeline_of_scikit_learn(tmp_path: Path) -> None:
    model = make_pipeline(StandardScaler(), RandomForestClassifier(3, random_state=0)).fit(X, Y)

    saved = save(model, tmp_path / "iris", example=X[:2])

    assert sorted(path.name for path in saved.path.iterdir()) == ["example.json", "model.skops"]
    assert (saved.model_format, saved.runs_code, saved.uri) == ("sklearn", False, f"file://{tmp_path}/iris")
    engine = served(saved)
    np.testing.assert_array_equal(ask(engine, "output-0", X), model.predict(X))
    np.testing.assert_array_equal(ask(engine, "probabilities", X), model.predict_proba(X))


def test_columns_of_a_data_frame_are_inputs(tmp_path: Path) -> None:
    columns = make_column_transformer((StandardScaler(), ["age"]), (OneHotEncoder(), ["city"]))
    model = make_pipeline(columns, LogisticRegression()).fit(PEOPLE, ["yes", "no", "yes", "yes"])

    saved = save(model, tmp_path / "churn", example=PEOPLE[["city", "age"]][:1])

    assert saved.inputs is not None
    assert [(spec.name, spec.datatype, spec.shape) for spec in saved.inputs] == [
        ("age", "FP64", (-1,)), ("city", "BYTES", (-1,)),
    ]  # fmt: skip
    assert saved.example is not None
    assert json.loads(saved.example.read_text())["inputs"] == [
        {"name": "age", "datatype": "FP64", "shape": [1], "data": [20.0]},
        {"name": "city", "datatype": "BYTES", "shape": [1], "data": ["Bern"]},
    ]
    given = ask(served(saved), "output-0", PEOPLE["age"], PEOPLE["city"])
    assert list(given) == list(model.predict(PEOPLE))


def test_a_linear_model_of_xgboost(tmp_path: Path) -> None:
    model = xgboost.XGBRegressor(**TREES, booster="gblinear").fit(X, Y)
    engine = served(save(model, tmp_path / "m"))
    np.testing.assert_allclose(ask(engine, "output-0", X), model.predict(X), rtol=1e-5)


@pytest.mark.parametrize("kind", [xgboost.XGBClassifier, xgboost.XGBRegressor])
def test_a_wrapper_of_xgboost(kind: type[Any], tmp_path: Path) -> None:
    model = kind(**TREES).fit(X, Y)

    engine = served(save(model, tmp_path / "m", example=pd.DataFrame(X[:2])))

    np.testing.assert_array_equal(ask(engine, "output-0", X), model.predict(X))


def test_a_booster_of_xgboost(tmp_path: Path) -> None:
    booster = xgboost.train({"objective": "binary:logistic", "nthread": 1}, xgboost.DMatrix(*two_kinds()), 3)

    engine = served(save(booster, tmp_path / "m"))

    np.testing.assert_array_equal(ask(engine, "output-0", X), booster.predict(xgboost.DMatrix(X)))


@pytest.mark.parametrize(
    "labels", [Y, np.array(["a", "b", "c"])[Y], Y == 0, np.array(["é", "b"])[(Y == 0).astype(int)]]
)
def test_a_classifier_of_lightgbm_returns_its_labels(labels: Any, tmp_path: Path) -> None:
    model = lightgbm_classifier(labels)

    engine = served(save(model, tmp_path / "m", example=X[:1].tolist()))

    assert list(ask(engine, "output-0", X)) == list(model.predict(X))
    np.testing.assert_array_equal(ask(engine, "probabilities", X), model.predict_proba(X))


def test_other_models_of_lightgbm(tmp_path: Path) -> None:
    regressor = lightgbm.LGBMRegressor(**TREES, verbose=-1).fit(X, Y)
    booster = lightgbm_classifier().booster_

    np.testing.assert_array_equal(ask(served(save(regressor, tmp_path / "r")), "output-0", X), regressor.predict(X))
    np.testing.assert_array_equal(ask(served(save(booster, tmp_path / "b")), "output-0", X), booster.predict(X))


@pytest.mark.parametrize("kind", [xgboost.XGBRegressor, lightgbm.LGBMRegressor])
def test_trees_record_the_columns_of_a_data_frame(kind: Any, tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c c", "d"])
    model = kind(**TREES).fit(frame.rename(columns={"c c": "c_c"}), Y)

    saved = save(model, tmp_path / "m", example=frame[["d", "c c", "b", "a"]][:1])

    engine = served(saved)
    assert saved.inputs is not None
    assert list(engine.signature.inputs[0].columns) == list(saved.inputs[0].columns) == ["a", "b", "c_c", "d"]
    assert saved.example is not None
    assert json.loads(saved.example.read_text())["inputs"][0]["data"] == X[0].tolist()
    with pytest.raises(NotSaved, match="'d' is missing, 'D' is unknown: the columns of the model are a, b, c_c, d"):
        save(model, tmp_path / "w", example=frame.rename(columns={"d": "D"}))


def test_a_model_of_onnx(tmp_path: Path) -> None:
    model = onnx.load_from_string(double())

    saved = save(model, tmp_path / "m", example={"x": np.array([1.0, 2.0], np.float32)})

    assert ask_onnx(served(saved), [1, 2]) == [2, 4]
    assert (saved.path / "model.onnx").read_bytes() == model.SerializeToString()


def ask_onnx(engine: Engine, values: list[float]) -> list[float]:
    (result,) = engine.infer({"x": np.array(values, np.float32)}, engine.signature.default_outputs)
    return [float(value) for value in result]


def test_weights_are_not_inputs_of_an_onnx_model(tmp_path: Path) -> None:
    saved = save(onnx.load_from_string(times(3)), tmp_path / "m")

    assert saved.inputs is not None
    assert [spec.name for spec in saved.inputs] == ["x"]


@pytest.mark.parametrize("make", [
    lambda: make_pipeline(StandardScaler(), RandomForestClassifier(3, random_state=0)).fit(X, Y),
    lambda: xgboost.XGBClassifier(**TREES).fit(X, Y),
    lightgbm_classifier,
])  # fmt: skip
def test_equal_models_have_equal_files(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = save(make(), tmp_path / "1").path
    later = time.localtime(time.time() + 86400)
    monkeypatch.setattr(time, "localtime", lambda *_: later)  # an archive would have the time of the call
    second = save(make(), tmp_path / "2").path

    assert [path.read_bytes() for path in first.iterdir()] == [path.read_bytes() for path in second.iterdir()]


class Scale(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # the library has no types
    """A transformer that no server has."""

    def fit(self, rows: Any, _: Any = None) -> Scale:
        self.n_features_in_ = rows.shape[1]
        return self

    def transform(self, rows: Any) -> Any:
        return rows


class Linear:
    """What a layer of PyTorch looks like from outside."""


Linear.__module__ = "torch.nn.modules.linear"


@pytest.mark.parametrize(("obj", "reason"), [
    (LogisticRegression(), "the LogisticRegression cannot be served: the model was saved before it was fitted: fit it"),
    (LogisticRegression, "LogisticRegression is a class of sklearn: give a fitted object of it"),
    (xgboost.XGBClassifier(), "the XGBClassifier cannot be saved as xgboost: need to call fit"),
    (xgboost.XGBRegressor(**TREES, missing=-9).fit(X, Y), "takes -9 for a missing value, which its file does not have"),
    (xgboost.XGBRegressor(**TREES, enable_categorical=True).fit(*CATEGORIES), "was trained on categories of a data fr"),
    (lightgbm.LGBMRegressor(**TREES, verbose=-1).fit(*CATEGORIES), "the LGBMRegressor was trained on categories of a"),
    (lightgbm.LGBMRegressor(), "the LGBMRegressor cannot be saved as lightgbm: No booster found. Need to call fit"),
    (make_pipeline(Scale(), LogisticRegression()).fit(X[:100], Y[:100]), r"run code .*loaded \(.*\.Scale\)"),
    (make_pipeline(FunctionTransformer(lambda x: x), LogisticRegression()).fit(X[:100], Y[:100]), "<lambda>"),
    (Linear(), r"a torch Linear cannot be saved directly: `torch.onnx.export\("),
    (lambda x: x, "a function cannot be saved: write a class with a method predict that calls it"),
    (np, "a module cannot be saved"),
    (X, "an object of type numpy ndarray cannot be saved: Knodel saves models of scikit-learn, XGBoost, LightGBM"),
    ("model.onnx", "type str cannot be saved"),
    (None, "type NoneType cannot be saved"),
])  # fmt: skip
def test_other_objects_are_refused_with_the_remedy(obj: object, reason: str, tmp_path: Path) -> None:
    with pytest.raises(NotSaved, match=reason):
        save(obj, tmp_path / "m", allow_code=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("example", "reason"), [
    (PEOPLE[:0], "the example does not fit the model: there is no row: give at least one"),
    (PEOPLE.rename(columns={"age": "Age"}), "'age' is missing, 'Age' is unknown: the inputs of the model are"),
    ({"age": [20.0]}, "'city' is missing"),
    ({"age": ["old"], "city": ["Bern"]}, "input 'age' has values that are not numbers: the model expects FP64"),
    ({"age": [20.0], "city": [1]}, "input 'city' has values that are not strings"),
    ({"age": [[20.0]], "city": ["Bern"]}, r"'age' has shape \[1, 1\]: the model expects \[-1\]"),
    ({"age": [float("nan")], "city": ["Bern"]}, "the example has NaN or infinity, which JSON cannot hold"),
    ([[20.0, "Bern"]], "the model has the inputs age, city: give a data frame or a dict by name"),
    (pd.concat([PEOPLE] * 20000), "the example has .* bytes as JSON, more than 1048576: give a few rows"),
])  # fmt: skip
def test_an_example_that_does_not_fit_is_refused(example: Any, reason: str, tmp_path: Path) -> None:
    columns = make_column_transformer((StandardScaler(), ["age"]), (OneHotEncoder(), ["city"]))
    model = make_pipeline(columns, LogisticRegression()).fit(PEOPLE, [0, 1, 1, 0])
    with pytest.raises(NotSaved, match=reason):
        save(model, tmp_path / "m", example=example)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotSaved, match=r"file/m cannot be written \(.*\): give another folder"):
        save(LogisticRegression(), tmp_path / "file" / "m")


def test_a_folder_with_files_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(NotSaved, match="is not an empty folder: give a new one"):
        save(LogisticRegression(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


LIGHT = """
import sys
for name in ("msgspec", "uvloop", "aiohttp"):  # packages of the server, which a light installation does not have
    sys.modules[name] = None
import numpy, xgboost
from sklearn.linear_model import LogisticRegression
from knodel.saving.save import save
rows, labels = numpy.eye(4), [0, 1, 0, 1]
class Same:
    def predict(self, x):
        return x
save(LogisticRegression().fit(rows, labels), sys.argv[1] + "/1", example=rows)
save(xgboost.XGBClassifier(n_estimators=1).fit(rows, labels), sys.argv[1] + "/2", example=rows)
save(Same, sys.argv[1] + "/3", example=rows, allow_code=True)
"""


def test_a_light_installation_saves_models(tmp_path: Path) -> None:
    (tmp_path / "light.py").write_text(LIGHT)
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, tmp_path / "light.py", tmp_path],
        cwd=root,
        env={"PYTHONPATH": "."},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    written = {path.name for folder in "123" for path in (tmp_path / folder).iterdir()}
    assert written == {"model.skops", "model.ubj", "model.py", "example.json"}
