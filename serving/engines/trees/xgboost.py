"""XGBoost models in the library's own formats, JSON and UBJSON, which run no code.

`output-0` is the result of `predict` of the saved class. A `Booster` uses all of its trees and returns the values of
its objective, such as the probability of class 1 for `binary:logistic`. An `XGBClassifier` returns labels. Both
scikit-learn wrappers use the trees up to the best iteration.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import xgboost

from serving.engines.base.datatypes import DATATYPES, Tensor
from serving.engines.base.errors import LoadFailed, short_reason
from serving.engines.base.folder import only_file
from serving.engines.base.tabular import (
    FLOATS,
    OUTPUT,
    PROBABILITIES,
    Rows,
    TabularEngine,
    TabularOutput,
    both_classes,
    identity,
    matrix_input,
    output_spec,
)
from serving.engines.trees import xgboost_model

if TYPE_CHECKING:
    from serving.engines.base.engine import EngineOptions
    from serving.storage.base.artifact import Artifact

PLATFORM: Final = "xgboost_booster"
SUFFIXES: Final = (".ubj", ".xgb", "model.json", ".bst")  # KServe's servers of both tree libraries load `model.bst`
_WRAPPER: Final = "scikit_learn"  # the attribute in which the wrappers save their type
_BEST: Final = "best_iteration"
_WITH_PROBABILITIES: Final = frozenset({"binary:logistic", "multi:softprob"})
_LABELS_ALREADY: Final = frozenset({"multi:softmax", "binary:hinge"})
_HALF: Final = 0.5  # a row with a higher probability is of class 1


@dataclass(frozen=True, slots=True)
class BoosterInfo:
    """The configuration of a booster that determines its outputs; `wrapper` saved it, and is "" for a `Booster`."""

    objective: str
    booster: str
    targets: int
    wrapper: str


def load(artifact: Artifact, options: EngineOptions) -> TabularEngine:
    """Load the artifact's only `*.ubj`, `*.xgb` or `*.bst` file, or `model.json`. Raises LoadFailed, StorageError."""
    name = only_file(artifact, SUFFIXES)
    try:
        content = artifact.read(name)
        if not content:
            raise ValueError("the file is empty")
        xgboost_model.vet(content)
        booster = xgboost.Booster(params={"nthread": options.threads})
        booster.load_model(bytearray(content))
        booster.set_param({"nthread": options.threads})
        return _engine(booster)
    except (xgboost.core.XGBoostError, ValueError, TypeError, LookupError) as error:
        raise LoadFailed(f"XGBoost cannot load {name}: {short_reason(error)}") from error


def _engine(booster: xgboost.Booster) -> TabularEngine:
    info, features = _booster_info(booster), booster.num_features()
    compute = _compute(booster, info)
    result = compute(np.zeros((1, features), DATATYPES[FLOATS].dtype))

    def output(name: str, read: Callable[[Tensor], Tensor]) -> TabularOutput:
        return TabularOutput(output_spec(name, read(result)), compute, read)

    is_classifier = info.wrapper == "classifier"
    outputs = [output(OUTPUT, partial(_labels, info) if is_classifier else identity)]
    if info.objective in _WITH_PROBABILITIES:
        outputs.append(output(PROBABILITIES, both_classes if result.ndim == 1 else identity))
    return TabularEngine(PLATFORM, [matrix_input(features, booster.feature_names or ())], outputs)


def _booster_info(booster: xgboost.Booster) -> BoosterInfo:
    learner: Any = json.loads(booster.save_config())["learner"]
    wrapper = json.loads(booster.attr(_WRAPPER) or "{}")
    return BoosterInfo(
        objective=learner["objective"]["name"],
        booster=learner["gradient_booster"]["name"],
        targets=int(learner["learner_model_param"]["num_target"]),
        wrapper=wrapper.get("_estimator_type", "") if isinstance(wrapper, dict) else "",
    )


def _compute(booster: xgboost.Booster, info: BoosterInfo) -> Callable[[Rows], Tensor]:
    """Return the function that predicts: `inplace_predict`, which XGBoost does not have for linear models."""
    if info.booster == "gblinear":
        return lambda rows: booster.predict(xgboost.DMatrix(rows), validate_features=False)
    best = booster.attr(_BEST) if info.wrapper else None
    trees = (0, 0 if best is None else int(best) + 1)  # (0, 0): all
    return partial(booster.inplace_predict, iteration_range=trees, validate_features=False)


def _labels(info: BoosterInfo, result: Tensor) -> Tensor:
    """Return the labels, numbers from 0, as `XGBClassifier.predict` does."""
    if info.objective in _LABELS_ALREADY:
        return result.astype(np.int64)
    if result.ndim == 1 or info.targets > 1:
        return (result > _HALF).astype(np.int64)
    labels: Tensor = result.argmax(axis=1)
    return labels
