"""scikit-learn models saved by skops and by pickle, trained here."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import skops.io
from sklearn.base import BaseEstimator
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC

from serving.engines.base.engine import ANY, EngineOptions
from serving.engines.base.errors import EngineError, LoadFailed
from serving.engines.base.registry import find_format, find_loader
from serving.engines.base.tabular import TabularEngine
from serving.engines.base.warmup import warm_up
from serving.engines.sklearn import engine as sklearn
from serving.engines.sklearn import pickled
from tests.support.tabular import ask, described, file, folder, iris

ALLOWED = EngineOptions(allow_code=True)


def engine(model: Any, options: EngineOptions | None = None) -> TabularEngine:
    return sklearn.load(file(skops.io.dumps(model)), options or EngineOptions())


class Doubler(BaseEstimator):  # type: ignore[misc]
    """An estimator of another package."""

    n_features_in_ = 1

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict(self, rows: Any) -> Any:
        """Return twice the first column."""
        return 2 * rows[:, 0]


def doubled(rows: Any) -> Any:
    """The function of a user's FunctionTransformer."""
    return 2 * rows


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(max_iter=1000),
        make_pipeline(StandardScaler(), LogisticRegression()),
        RandomForestClassifier(10, n_jobs=-1),
        GradientBoostingClassifier(n_estimators=5),
        KNeighborsClassifier(),
        MLPClassifier((4,), max_iter=2000, tol=1e-2),
        SGDClassifier(loss="log_loss"),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_classifier_answers_as_it_does_itself(model: Any) -> None:
    features, kinds = iris()
    model.fit(features, kinds)
    made = engine(model)
    assert made.signature.inputs[0].shape == (ANY, 4)
    assert made.signature.default_outputs == ("output-0",) and made.bounded
    assert described(made) == {
        "output-0": ("INT64", (ANY,)), "probabilities": ("FP64", (ANY, 3)), "predict": ("INT64", (ANY,)),
    }  # fmt: skip
    np.testing.assert_array_equal(ask(made, "output-0", features), model.predict(features))
    np.testing.assert_allclose(ask(made, "probabilities", features), model.predict_proba(features))
    assert warm_up(made) is not None


@pytest.mark.parametrize("model", [Ridge(), HistGradientBoostingRegressor(max_iter=5)], ids=lambda m: type(m).__name__)
def test_a_regression_has_no_probabilities(model: Any) -> None:
    features, _ = iris()
    model.fit(features[:, 1:], features[:, 0])
    made = engine(model)
    assert described(made) == dict.fromkeys(("output-0", "predict"), ("FP64", (ANY,)))
    np.testing.assert_allclose(ask(made, "predict", features[:, 1:]), model.predict(features[:, 1:]))


def test_what_the_model_gives_decides_what_can_be_asked() -> None:
    features, kinds = iris()
    assert "probabilities" not in described(engine(SVC().fit(features, kinds)))
    several = KNeighborsClassifier().fit(features, np.stack((kinds, kinds), axis=1))
    assert described(engine(several)) == dict.fromkeys(("output-0", "predict"), ("INT64", (ANY, 2)))
    named = LogisticRegression(max_iter=1000).fit(features, np.array(["setosa", "versicolor", "virginica"])[kinds])
    made = engine(named)
    assert described(made)["output-0"] == ("BYTES", (ANY,))
    assert ask(made, "output-0", features[:1]).tolist() == ["setosa"]
    assert described(engine(StandardScaler().fit(features)))["output-0"] == ("FP64", (ANY, 4))


@pytest.mark.bad_input("artifact-unsafe")
def test_a_type_that_is_not_trusted_is_named_unless_code_is_allowed() -> None:
    content = skops.io.dumps(Doubler())
    with pytest.raises(
        LoadFailed, match=r"types that may run code \(.*Doubler\): save it as ONNX, or .* with --allow-code"
    ):
        sklearn.load(file(content), EngineOptions())
    made = sklearn.load(file(content), ALLOWED)
    assert ask(made, "output-0", [[2.0]]) == 4
    assert not made.bounded


def test_a_function_of_the_users_is_no_arithmetic_of_scikit_learn() -> None:
    features, kinds = iris()
    model = make_pipeline(FunctionTransformer(doubled), LogisticRegression(max_iter=1000)).fit(features, kinds)
    assert not engine(model, ALLOWED).bounded
    model = make_pipeline(FunctionTransformer(np.log1p), LogisticRegression(max_iter=1000)).fit(features, kinds)
    assert engine(model).bounded


@pytest.mark.bad_input("artifact-headers")
def test_a_bomb_is_refused_before_it_inflates() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", b" " * (1 << 20))
    with pytest.raises(LoadFailed, match="inflate"):
        sklearn.load(file(packed.getvalue()), EngineOptions())


def test_a_compressed_model_is_taken() -> None:
    features, kinds = iris()
    model = LogisticRegression(max_iter=1000).fit(features, kinds)
    content = skops.io.dumps(model, compression=zipfile.ZIP_DEFLATED, compresslevel=9)
    np.testing.assert_array_equal(
        ask(sklearn.load(file(content), EngineOptions()), "predict", features), model.predict(features)
    )


@pytest.mark.bad_input("artifact-headers")
@pytest.mark.parametrize("schema", [b"", b"{}", b"[" * 100_000, b'{"protocol": 1, "__loader__": "X"}'])
def test_damaged_models_are_refused_in_words_without_paths(schema: bytes) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("schema.json", schema)
    content = skops.io.dumps(Ridge().fit([[0.0], [1.0]], [0.0, 1.0]))
    for damaged in (packed.getvalue(), content[: len(content) // 2], content[:-30], b"", pickle.dumps(1)):
        with pytest.raises(EngineError) as error:
            sklearn.load(file(damaged), ALLOWED)
        assert "\n" not in str(error.value) and "/" not in str(error.value)


@pytest.mark.bad_input("artifact-unsafe", "artifact-code")
def test_a_pickle_under_another_name_is_not_loaded() -> None:
    with pytest.raises(LoadFailed):
        sklearn.load(file(pickle.dumps(Ridge()), "model.skops"), ALLOWED)


def test_a_folder_is_served_by_its_only_model(tmp_path: Path) -> None:
    content = skops.io.dumps(Ridge().fit([[0.0], [1.0]], [0.0, 1.0]))
    made = sklearn.load(folder(tmp_path / "m", model__skops=content, README__md=b"", model__pkl=b"?"), EngineOptions())
    assert ask(made, "output-0", [[0.5]]) == pytest.approx(0.5)


@pytest.mark.parametrize("name", ["pickle", "joblib"])
@pytest.mark.parametrize("how", ["pickle", "joblib", "joblib compressed"])
def test_pickles_of_both_kinds_are_loaded_where_code_is_allowed(name: str, how: str) -> None:
    features, kinds = iris()
    model = RandomForestClassifier(5).fit(features, kinds)
    packed = io.BytesIO()
    if how == "pickle":
        pickle.dump(model, packed)
    else:
        joblib.dump(model, packed, compress=3 if how.endswith("compressed") else 0)
    load = find_loader(find_format(name, ()))
    with pytest.raises(LoadFailed, match="allow-code"):
        load(file(packed.getvalue()), EngineOptions())
    made = load(file(packed.getvalue()), ALLOWED)
    np.testing.assert_array_equal(ask(made, "predict", features), model.predict(features))
    assert made.bounded


@pytest.mark.parametrize("content", [b"", b"\x80", pickle.dumps(42), pickle.dumps(Ridge()), b"cnowhere\nto\n."])
def test_what_is_no_fitted_model_is_refused(content: bytes) -> None:
    with pytest.raises(LoadFailed) as error:
        pickled.load(file(content), ALLOWED)
    assert "\n" not in str(error.value) and "/" not in str(error.value).replace(file(b"").uri, "")
