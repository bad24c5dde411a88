"""`fast_predict` of linear estimators returns the results of scikit-learn, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import (
    ElasticNet,
    Lasso,
    LinearRegression,
    LogisticRegression,
    Perceptron,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
    SGDRegressor,
)
from sklearn.svm import LinearSVC, LinearSVR

from serving.engines.sklearn.linear import fast_predict

RANDOM = np.random.default_rng(6)
ROWS = RANDOM.normal(size=(60, 5))
NUMBERS = ROWS @ RANDOM.normal(size=5) + 1
TWO = NUMBERS > 1
THREE = np.array(["low", "middle", "high"])[np.digitize(NUMBERS, [0, 2])]
SEVERAL = np.stack((NUMBERS, -NUMBERS), axis=1)

LINEAR = [
    LogisticRegression().fit(ROWS, TWO),
    LogisticRegression().fit(ROWS, THREE),
    LogisticRegression(fit_intercept=False).fit(ROWS, THREE),
    SGDClassifier(random_state=0).fit(ROWS, THREE),
    Perceptron(random_state=0).fit(ROWS, TWO),
    LinearSVC(random_state=0).fit(ROWS, THREE),
    LinearRegression().fit(ROWS, NUMBERS),
    LinearRegression().fit(ROWS, SEVERAL),
    LinearRegression(fit_intercept=False).fit(ROWS, NUMBERS),
    LinearSVR(random_state=0).fit(ROWS, NUMBERS),
]
OTHERS = [
    Ridge().fit(ROWS, SEVERAL),
    ElasticNet().fit(ROWS, NUMBERS),
    RidgeClassifier().fit(ROWS, TWO),
    PoissonRegressor().fit(ROWS, np.abs(NUMBERS)),
    SGDClassifier(random_state=0).fit(ROWS, THREE).sparsify(),
    SGDRegressor(random_state=0).fit(ROWS, NUMBERS),
]


@pytest.mark.parametrize("model", LINEAR, ids=str)
@pytest.mark.parametrize("count", [1, 2, 3, 17, 60])
def test_predictions_are_equal_to_the_last_bit(model: Any, count: int) -> None:
    predict = fast_predict(model)

    assert predict is not None
    for scale in (1e-300, 1, 1e200):
        rows = np.ascontiguousarray(ROWS[:count] * scale)
        expected = model.predict(rows)
        found = predict(rows)
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert found.tobytes() == expected.tobytes() or np.array_equal(found, expected)


@pytest.mark.parametrize("model", OTHERS, ids=str)
def test_an_estimator_with_a_way_of_its_own_is_asked_itself(model: Any) -> None:
    assert fast_predict(model) is None


@pytest.mark.parametrize("kind", [Lasso, ElasticNet, LogisticRegression])
def test_estimators_are_taken_by_their_methods_and_not_by_their_names(kind: Any) -> None:
    class Own(kind):  # type: ignore[misc] # whatever it is of
        def predict(self, rows: Any) -> Any:
            return np.zeros(len(rows))

    model = Own().fit(ROWS, TWO if kind is LogisticRegression else NUMBERS)

    assert fast_predict(model) is None


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_in_the_words_of_the_library(bad: float) -> None:
    predict = fast_predict(LINEAR[0])
    rows = ROWS[:2].copy()
    rows[1, 3] = bad

    assert predict is not None
    with pytest.raises(ValueError, match="contains"):
        predict(rows)


def test_rows_of_another_width_or_type_are_for_the_library() -> None:
    predict = fast_predict(LINEAR[0])

    assert predict is not None
    with pytest.raises(ValueError, match="features"):
        predict(ROWS[:, :4])
    assert np.array_equal(predict(ROWS.astype(np.float32)), LINEAR[0].predict(ROWS.astype(np.float32)))
