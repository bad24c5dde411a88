"""Create engines from fitted scikit-learn estimators, for both file formats.

`output-0` is the result of `predict`, or of `transform` for a transformer; `probabilities` is that of `predict_proba`.
Their types and shapes are determined by one call with an example row of values that the estimator knows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import ModuleType
from typing import Any, Final

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import _VectorizerMixin
from threadpoolctl import ThreadpoolController

from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import EngineOptions, TensorSpec
from serving.engines.base.errors import LoadFailed, short_reason
from serving.engines.base.tabular import (
    FLOATS,
    OUTPUT,
    PROBABILITIES,
    TabularEngine,
    TabularOutput,
    as_tensor,
    output_spec,
)
from serving.engines.sklearn.features import Features, by_position, features_of
from serving.engines.sklearn.linear import fast_predict

_PLAIN: Final = (str, bytes, int, float, complex, type(None), np.generic)
_LIBRARIES: Final = frozenset({"sklearn", "numpy", "scipy", "builtins", "xgboost", "lightgbm"})
"""Packages whose time for an inference depends only on the size of its input, except for patterns of vectorizers."""


class ThreadLimit:
    """Limit OpenMP and BLAS to `threads` threads in each thread that calls it; OpenMP has a limit for each thread.

    It affects the libraries that are loaded when it is created. Searching for them again would take a thousand times as
    long as a call.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._controller = ThreadpoolController()
        self._thread = threading.local()

    def __call__(self) -> None:
        """Limit the calling thread, the first time."""
        if not hasattr(self._thread, "limited"):
            self._controller.limit(limits=self._threads)
            self._thread.limited = True


def make_engine(model: Any, platform: str, options: EngineOptions) -> TabularEngine:
    """Create the engine of a fitted estimator, and modify the estimator for serving. Raises LoadFailed."""
    features = features_of(model)
    parts = parts_of(model)
    _prepare(parts)
    outputs = _outputs(model, features)
    bounded = all(_package(part) in _LIBRARIES and not isinstance(part, _VectorizerMixin) for part in parts)
    return TabularEngine(platform, features.specs, outputs, rows=features.rows, bounded=bounded,
                         enter_thread=ThreadLimit(options.threads))  # fmt: skip


def parts_of(model: Any) -> list[Any]:
    """Return all objects inside the model, itself first, without containers, arrays and plain values."""
    parts, seen, left = [], set(), [model]
    while left:
        part = left.pop()
        if isinstance(part, _PLAIN) or id(part) in seen:
            continue
        seen.add(id(part))
        inner = _elements(part)
        if inner is None:
            parts.append(part)
            inner = () if isinstance(part, type | ModuleType) else getattr(part, "__dict__", {}).values()
        left.extend(inner)
    return parts


def _elements(part: Any) -> Iterable[Any] | None:
    """Return the elements of a container, None for anything else."""
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
    """Let the estimators accept arrays without column names, and use one thread each.

    An estimator that was fitted on a data frame warns about arrays without names. joblib starts new threads for each
    call, which takes longer than they save; requests run in parallel instead.
    """
    for part in parts:
        if not isinstance(part, BaseEstimator):
            continue
        state = vars(part)
        if isinstance(part, ColumnTransformer) and "transformers_" in state:
            part.transformers_ = list(by_position(part))
        state.pop("feature_names_in_", None)
        state.pop("_sklearn_output_config", None)  # returns data frames otherwise
        if "n_jobs" in state:
            part.n_jobs = 1


def _outputs(model: Any, features: Features) -> list[TabularOutput]:
    compute = fast_predict(model) or getattr(model, "predict", None) or getattr(model, "transform", None)
    if compute is None:
        raise LoadFailed(f"a {type(model).__name__} has neither predict nor transform: it cannot be served")
    classes = getattr(model, "classes_", None)
    outputs = [_output(OUTPUT, compute, features, classes if isinstance(classes, np.ndarray) else None)]
    # With several targets `classes` is a list, with an array for each.
    if hasattr(model, "predict_proba") and not isinstance(classes, list):
        outputs.append(_output(PROBABILITIES, model.predict_proba, features, None))
    return outputs


def _output(name: str, compute: Callable[[Any], Any], features: Features, labels: Tensor | None) -> TabularOutput:
    spec = _observed_spec(name, compute, features)
    if spec is None:
        known = None if labels is None else output_spec(name, as_tensor(labels))
        spec = known or TensorSpec(name, FLOATS, None)
    return TabularOutput(spec, compute, partial(as_tensor, datatype=spec.datatype))


def _observed_spec(name: str, compute: Callable[[Any], Any], features: Features) -> TensorSpec | None:
    """Return the spec of the output for two example rows, None when the model rejects them.

    Some estimators return a result without the dimension of rows for a single row.
    """
    try:
        with np.errstate(all="ignore"):
            return output_spec(name, as_tensor(compute(np.repeat(features.example, 2, axis=0))))
    except NotFittedError as error:
        raise LoadFailed("the model was saved before it was fitted: fit it first") from error
    except ValueError:  # the model rejects the example
        return None
    except LoadFailed:
        raise
    except Exception as error:  # such as missing libraries or missing state
        raise LoadFailed(f"the model cannot compute {name}: {short_reason(error)}") from error
