"""Estimators that were fitted on data frames are served without data frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import BaggingClassifier, VotingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from serving.engines.base.engine import ANY, EngineOptions
from serving.engines.base.errors import InputRefused
from serving.engines.base.tabular import TabularEngine
from serving.engines.sklearn.estimator import make_engine
from tests.support.tabular import ask, described, inputs_of, iris

pandas = pytest.importorskip("pandas", reason="makes the data frames that models are fitted on")

PASSENGERS = pandas.DataFrame({
    "name": ["Ada", "Bob", "Cyd", "Dan", "Eve", "Fay"],
    "sex": ["female", "male", "female", "male", "female", "female"],
    "age": [38.0, 22.0, 26.0, 35.0, 4.0, 58.0],
    "port": ["C", "S", "S", "Q", "S", "C"],
    "fare": [71.3, 7.3, 7.9, 8.1, 16.7, 26.6],
})  # fmt: skip
SURVIVED = np.array([1, 0, 1, 0, 1, 1])
TEXTS = ["good film", "bad film", "good play", "bad play"]
GOOD = np.array(["yes", "no", "yes", "no"])


def engine(model: Any) -> TabularEngine:
    return make_engine(model, "test", EngineOptions())


def survival() -> Any:
    """Return a model that was fitted on a data frame and drops one of its columns."""
    columns = make_column_transformer(
        (StandardScaler(), ["fare", "age"]),
        (make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore")), ["sex"]),
        (OrdinalEncoder(), ["port"]),
    )
    return make_pipeline(columns, LogisticRegression())


def test_a_model_of_a_data_frame_takes_its_columns_by_name_without_data_frames() -> None:
    model = survival().fit(PASSENGERS, SURVIVED)
    expected = model.predict_proba(PASSENGERS)
    made = engine(model)
    assert inputs_of(made) == {
        "sex": ("BYTES", (ANY,)), "age": ("FP64", (ANY,)), "port": ("BYTES", (ANY,)), "fare": ("FP64", (ANY,)),
    }  # fmt: skip
    assert described(made)["probabilities"] == ("FP64", (ANY, 2))
    columns = [PASSENGERS[name].tolist() for name in ("sex", "age", "port", "fare")]
    np.testing.assert_allclose(ask(made, "probabilities", *columns), expected)
    as_bytes = [[item.encode() for item in column] if isinstance(column[0], str) else column for column in columns]
    np.testing.assert_allclose(ask(made, "probabilities", *as_bytes), expected)


def test_columns_of_different_lengths_and_unknown_categories_are_refused() -> None:
    made = engine(survival().fit(PASSENGERS, SURVIVED))
    for port, fare in ((["C"], [1.0, 2.0]), (["X"], [1.0]), ([b"\xff"], [1.0])):
        with pytest.raises(InputRefused):
            ask(made, "output-0", ["male"], [30.0], port, fare)


def test_a_search_finds_the_columns_of_what_it_found() -> None:
    search = GridSearchCV(survival(), {"logisticregression__C": [0.1, 1.0]}, cv=2)
    kept = PASSENGERS.assign(port="S")
    expected = search.fit(kept, SURVIVED).predict_proba(kept)
    made = engine(search)
    assert list(inputs_of(made)) == ["sex", "age", "port", "fare"]
    columns = [kept[name].tolist() for name in inputs_of(made)]
    np.testing.assert_allclose(ask(made, "probabilities", *columns), expected)


def test_numbers_of_a_data_frame_are_inputs_by_its_columns_and_nothing_warns() -> None:
    features, kinds = iris()
    frame = pandas.DataFrame(features, columns=["sepal length", "b", "c", "d"])
    calibrated = CalibratedClassifierCV(DecisionTreeClassifier(), cv=2)
    voting = VotingClassifier([("one", LogisticRegression(max_iter=1000)), ("two", BaggingClassifier())])
    search = GridSearchCV(LogisticRegression(max_iter=1000), {"C": [1.0]}, cv=2)
    for model in (make_pipeline(StandardScaler(), LogisticRegression()), calibrated, voting, search):
        made = engine(model.fit(frame, kinds))
        assert list(inputs_of(made).items()) == [(name, ("FP64", (ANY,))) for name in frame.columns]
        assert (ask(made, "output-0", *features.T) == kinds).mean() > 0.9


def test_columns_of_one_name_are_a_matrix() -> None:
    features, kinds = iris()
    model = LogisticRegression(max_iter=1000).fit(features, kinds)
    model.feature_names_in_ = np.array(list("abca"), object)  # as older releases keep them
    made = engine(model)
    assert inputs_of(made) == {"input-0": ("FP64", (ANY, 4))}
    assert (ask(made, "output-0", features) == kinds).mean() > 0.9


def test_a_model_that_makes_data_frames_gives_arrays() -> None:
    features, _ = iris()
    scaler = StandardScaler().set_output(transform="pandas").fit(pandas.DataFrame(features, columns=list("abcd")))
    np.testing.assert_allclose(ask(engine(scaler), "output-0", *features.T).mean(axis=0), 0, atol=1e-9)


def test_a_text_column_of_a_data_frame_goes_to_its_vectorizer() -> None:
    frame = pandas.DataFrame({"review": TEXTS, "stars": [5.0, 1.0, 4.0, 2.0]})
    columns = make_column_transformer((TfidfVectorizer(), "review"), (StandardScaler(), ["stars"]))
    made = engine(make_pipeline(columns, LogisticRegression()).fit(frame, GOOD))
    assert inputs_of(made) == {"review": ("BYTES", (ANY,)), "stars": ("FP64", (ANY,))}
    assert ask(made, "output-0", ["good film", "bad"], [5, 1]).tolist() == ["yes", "no"]
