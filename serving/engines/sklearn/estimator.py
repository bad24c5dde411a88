"""Fitted scikit-learn estimators as engines, wherever they were loaded from.

`output-0` is what `predict` says (`transform`, of what only transforms), `probabilities` what `predict_proba` says.
What the answers look like is found by asking once, for a row that the estimator has seen something of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import ModuleType
from typing import Any, Final

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import _VectorizerMixin

from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import EngineOptions, TensorSpec
from serving.engines.base.errors import LoadFailed
from serving.engines.base.reasons import reason_of
from serving.engines.base.tabular import FLOATS, OUTPUT, PROBABILITIES, Answer, TabularEngine, as_tensor, spec_of
from serving.engines.base.threads import ThreadLimit
from serving.engines.sklearn.features import Features, by_position, features_of
from serving.engines.sklearn.linear import direct

_PLAIN: Final = (str, bytes, int, float, complex, type(None), np.generic)
_LIBRARIES: Final = frozenset({"sklearn", "numpy", "scipy", "builtins", "xgboost", "lightgbm"})
"""Whose code takes a time that depends on the size of its input only; but for the patterns by which texts are cut."""


def engine_of(model: Any, platform: str, options: EngineOptions) -> TabularEngine:
    """The engine of a fitted estimator, which it changes for serving. Raises LoadFailed."""
    features = features_of(model)
    parts = parts_of(model)
    _prepare(parts)
    answers = _answers(model, features)
    bounded = all(_package(part) in _LIBRARIES and not isinstance(part, _VectorizerMixin) for part in parts)
    return TabularEngine(platform, features.specs, answers, rows=features.rows, bounded=bounded,
                         enter_thread=ThreadLimit(options.threads))  # fmt: skip


def parts_of(model: Any) -> list[Any]:
    """Every object of which the model is made, itself first; without containers, arrays and plain values."""
    parts, seen, left = [], set(), [model]
    while left:
        part = left.pop()
        if isinstance(part, _PLAIN) or id(part) in seen:
            continue
        seen.add(id(part))
        inner = _inner(part)
        if inner is None:
            parts.append(part)
            inner = () if isinstance(part, type | ModuleType) else getattr(part, "__dict__", {}).values()
        left.extend(inner)
    return parts


def _inner(part: Any) -> Iterable[Any] | None:
    """What a container contains; None of what is none."""
    if isinstance(part, Mapping):
        return part.values()
    if isinstance(part, partial):
        return part.func, *part.args, *part.keywords.values()
    if isinstance(part, np.ndarray):
        return part.flat if part.dtype == object else ()
    return part if isinstance(part, list | tuple | set | frozenset) else None


def _package(part: Any) -> str:
    module: str = getattr(part, "__module__", None) or type(part).__module__
    return module.partition(".")[0]


def _prepare(parts: Iterable[Any]) -> None:
    """Make the estimators take arrays by position, and one thread each.

    They would warn of arrays without the names of the data frame that they were fitted on, and joblib starts its
    threads anew for each call, which costs more than they save: requests run in parallel, not parts of one.
    """
    for part in parts:
        if not isinstance(part, BaseEstimator):
            continue
        state = vars(part)
        if isinstance(part, ColumnTransformer) and "transformers_" in state:
            part.transformers_ = list(by_position(part))
        state.pop("feature_names_in_", None)
        state.pop("_sklearn_output_config", None)  # data frames as answers
        if "n_jobs" in state:
            part.n_jobs = 1


def _answers(model: Any, features: Features) -> list[Answer]:
    ask = direct(model) or getattr(model, "predict", None) or getattr(model, "transform", None)
    if ask is None:
        raise LoadFailed(f"a {type(model).__name__} has neither predict nor transform: it cannot be served")
    classes = getattr(model, "classes_", None)
    answers = [_answer(OUTPUT, ask, features, classes if isinstance(classes, np.ndarray) else None)]
    if hasattr(model, "predict_proba") and not isinstance(classes, list):  # a list for each of several targets
        answers.append(_answer(PROBABILITIES, model.predict_proba, features, None))
    return answers


def _answer(name: str, ask: Callable[[Any], Any], features: Features, labels: Tensor | None) -> Answer:
    spec = _seen(name, ask, features)
    if spec is None:
        known = None if labels is None else spec_of(name, as_tensor(labels))
        spec = known or TensorSpec(name, FLOATS, None)
    return Answer(spec, ask, partial(as_tensor, datatype=spec.datatype))


def _seen(name: str, ask: Callable[[Any], Any], features: Features) -> TensorSpec | None:
    """The output as it comes for two rows, since some forget that one row is a row; None when they are refused."""
    try:
        with np.errstate(all="ignore"):
            return spec_of(name, as_tensor(ask(np.repeat(features.example, 2, axis=0))))
    except NotFittedError as error:
        raise LoadFailed("the model was saved before it was fitted: fit it first") from error
    except ValueError:  # the example means nothing to it
        return None
    except LoadFailed:
        raise
    except Exception as error:  # libraries that it needs, state that it lacks
        raise LoadFailed(f"the model gives no {name}: {reason_of(error)}") from error
