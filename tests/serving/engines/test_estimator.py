"""The inputs of fitted estimators, and their preparation for serving."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_info

from serving.engines.base.engine import ANY, EngineOptions
from serving.engines.base.errors import LoadFailed
from serving.engines.base.tabular import TabularEngine
from serving.engines.sklearn.estimator import make_engine, parts_of
from tests.support.tabular import ask, described, inputs_of, iris

TEXTS = ["good film", "bad film", "good play", "bad play"]
GOOD = np.array(["yes", "no", "yes", "no"])


def engine(model: Any, threads: int = 1) -> TabularEngine:
    return make_engine(model, "test", EngineOptions(threads))


def test_columns_without_names_are_numbered() -> None:
    rows = np.array([["a", 1.0], ["b", 2.0], ["a", 3.0]], dtype=object)
    columns = ColumnTransformer([("text", OneHotEncoder(), [0]), ("number", "passthrough", [1])])
    made = engine(make_pipeline(columns, DecisionTreeClassifier()).fit(rows, [0, 1, 0]))
    assert inputs_of(made) == {"input-0": ("BYTES", (ANY,)), "input-1": ("FP64", (ANY,))}
    assert ask(made, "output-0", ["a", "b"], [1, 2]).tolist() == [0, 1]


def test_texts_only_are_a_matrix_of_texts() -> None:
    rows = np.array([["a", "x"], ["b", "y"]], dtype=object)
    made = engine(make_pipeline(OneHotEncoder(), DecisionTreeClassifier()).fit(rows, [0, 1]))
    assert inputs_of(made) == {"input-0": ("BYTES", (ANY, 2))}
    assert ask(made, "output-0", rows).tolist() == [0, 1]


@pytest.mark.parametrize(
    "vectorizer",
    [CountVectorizer(), TfidfVectorizer(), HashingVectorizer(n_features=64),
     FeatureUnion([("words", CountVectorizer()), ("letters", CountVectorizer(analyzer="char"))])],
    ids=lambda vectorizer: type(vectorizer).__name__,
)  # fmt: skip
def test_a_model_of_texts_takes_texts(vectorizer: Any) -> None:
    made = engine(make_pipeline(vectorizer, LogisticRegression(C=100)).fit(TEXTS, GOOD))
    assert inputs_of(made) == {"input-0": ("BYTES", (ANY,))}
    assert described(made)["output-0"] == ("BYTES", (ANY,))
    assert ask(made, "output-0", [b"good film", "bad film"]).tolist() == ["yes", "no"]


def test_sparse_answers_are_given_whole() -> None:
    made = engine(CountVectorizer().fit(TEXTS))
    assert described(made)["output-0"] == ("INT64", (ANY, 4))
    assert ask(made, "output-0", ["good good film"]).tolist() == [[0, 1, 2, 0]]


@pytest.mark.parametrize("model", [DecisionTreeClassifier(), object(), 42, DecisionTreeClassifier])
def test_what_is_no_fitted_estimator_is_refused(model: Any) -> None:
    with pytest.raises(LoadFailed):
        engine(model)


def test_a_model_uses_one_thread_of_joblib_and_those_granted_of_openmp() -> None:
    features, kinds = iris()
    model = BaggingClassifier(RandomForestClassifier(2, n_jobs=-1), 2).fit(features, kinds)
    model.n_jobs = -1
    made = engine(model)
    assert {part.n_jobs for part in parts_of(model) if hasattr(part, "n_jobs")} == {1}
    limits: list[int] = []

    def infer() -> None:
        ask(made, "output-0", features[:1])
        limits.extend(pool["num_threads"] for pool in threadpool_info())

    thread = threading.Thread(target=infer)
    thread.start()
    thread.join()
    assert set(limits) == {1}


def test_threads_get_their_own_answers() -> None:
    features, kinds = iris()
    made = engine(RandomForestClassifier(5, random_state=0).fit(features, kinds))
    expected = ask(made, "probabilities", features)
    wrong: list[int] = []

    def infer(row: int) -> None:
        if not np.array_equal(ask(made, "probabilities", features[row : row + 1]), expected[row : row + 1]):
            wrong.append(row)

    threads = [threading.Thread(target=infer, args=(row,)) for row in range(0, 150, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
