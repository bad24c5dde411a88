"""Fast `predict` for linear estimators of scikit-learn, without its validation of arrays.

`predict` of a linear model takes 140 µs for one row, of which 130 validate the array; here its type is known. In
unusual cases (NaN, sparse coefficients, an overridden `predict`) the estimator itself is called, and raises its own
errors. The sums are those of `sklearn.linear_model._base`, term by term, so that results are equal to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from sklearn.linear_model import _base
from sklearn.linear_model._base import LinearClassifierMixin, LinearModel

from serving.engines.base.datatypes import Tensor

Predict: TypeAlias = Callable[[Any], Any]

_PREDICTS = {LinearModel.predict, getattr(_base, "MultiOutputLinearModel", LinearModel).predict}
"""`predict` of regressors; the second class exists since scikit-learn 1.9 and only calls the first."""


def fast_predict(model: Any) -> Predict | None:
    """Return a `predict` without validation; None unless `model` is a linear model with dense coefficients."""
    kind = type(model)
    predict = getattr(kind, "predict", None)
    if not _is_dense(model):
        return None
    if predict in _PREDICTS:
        plain = kind._decision_function is LinearModel._decision_function
        return _FastPredict(model, _scores(model)) if plain else None
    plain = predict is LinearClassifierMixin.predict and (
        kind.decision_function is LinearClassifierMixin.decision_function
    )
    return _FastPredict(model, _labels(model)) if plain and isinstance(model.classes_, np.ndarray) else None


class _FastPredict:
    """Call `compute` for rows of finite FP64, and the estimator for all others."""

    def __init__(self, model: Any, compute: Predict) -> None:
        self._model = model
        self._compute = compute
        self._features = model.coef_.shape[-1]
        self._dtype = np.dtype(np.float64)

    def __call__(self, rows: Tensor) -> Any:
        """Return the predictions, [rows] or [rows, targets]. Raises the errors of the estimator."""
        known = isinstance(rows, np.ndarray) and rows.dtype is self._dtype and rows.ndim == 2
        if known and rows.shape[1] == self._features and math.isfinite(np.add.reduce(rows, axis=None)):
            return self._compute(rows)
        return self._model.predict(rows)


def _is_dense(model: Any) -> bool:
    coefficients, intercept = getattr(model, "coef_", None), getattr(model, "intercept_", None)
    return (
        isinstance(coefficients, np.ndarray)
        and coefficients.ndim in (1, 2)
        and coefficients.dtype == np.float64
        and isinstance(intercept, np.ndarray | float)
        and getattr(model, "n_features_in_", None) == coefficients.shape[-1]
    )


def _scores(model: Any) -> Predict:
    coefficients, intercept = model.coef_, model.intercept_
    weights = coefficients.T if coefficients.ndim > 1 else coefficients
    return lambda rows: rows @ weights + intercept


def _labels(model: Any) -> Predict:
    scores_of, classes = _scores(model), model.classes_

    def labels(rows: Tensor) -> Any:
        scores = scores_of(rows)
        if scores.ndim > 1 and scores.shape[1] == 1:
            scores = scores.reshape(-1)
        positions = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return classes.take(positions, axis=0)

    return labels
