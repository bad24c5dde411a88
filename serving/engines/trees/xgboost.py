"""XGBoost models in the library's own formats, JSON and UBJSON: neither runs code.

The model answers as what was saved does. A `Booster` gives its objective's values (of `binary:logistic` the probability
of class 1) by all of its trees; an `XGBClassifier` gives labels, and both wrappers stop at the best iteration.
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
from serving.engines.base.errors import LoadFailed
from serving.engines.base.folder import only_file
from serving.engines.base.reasons import reason_of
from serving.engines.base.tabular import (
    FLOATS,
    OUTPUT,
    PROBABILITIES,
    Answer,
    Rows,
    TabularEngine,
    as_it_is,
    both_classes,
    matrix,
    spec_of,
)
from serving.engines.trees import xgboost_model

if TYPE_CHECKING:
    from serving.engines.base.engine import EngineOptions
    from serving.storage.base.artifact import Artifact

PLATFORM: Final = "xgboost_booster"
SUFFIXES: Final = (".ubj", ".xgb", "model.json")
_WRAPPER: Final = "scikit_learn"  # attribute in which the wrappers keep what kind they are
_BEST: Final = "best_iteration"
_WITH_PROBABILITIES: Final = frozenset({"binary:logistic", "multi:softprob"})
_LABELS_ALREADY: Final = frozenset({"multi:softmax", "binary:hinge"})
_HALF: Final = 0.5  # the probability from which on a row is of class 1


@dataclass(frozen=True, slots=True)
class Kind:
    """What the model is: its objective, its booster, the number of its targets, and the wrapper that saved it or ""."""

    objective: str
    booster: str
    targets: int
    wrapper: str


def load(artifact: Artifact, options: EngineOptions) -> TabularEngine:
    """The model of the artifact's only `*.ubj`, `*.xgb` or `model.json`. Raises LoadFailed, StorageError."""
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
        raise LoadFailed(f"XGBoost cannot load {name}: {reason_of(error)}") from error


def _engine(booster: xgboost.Booster) -> TabularEngine:
    kind, features = _kind(booster), booster.num_features()
    compute = _compute(booster, kind)
    said = compute(np.zeros((1, features), DATATYPES[FLOATS].dtype))

    def answer(name: str, read: Callable[[Tensor], Tensor]) -> Answer:
        return Answer(spec_of(name, read(said)), compute, read)

    is_classifier = kind.wrapper == "classifier"
    answers = [answer(OUTPUT, partial(_labels, kind) if is_classifier else as_it_is)]
    if kind.objective in _WITH_PROBABILITIES:
        answers.append(answer(PROBABILITIES, both_classes if said.ndim == 1 else as_it_is))
    return TabularEngine(PLATFORM, [matrix(features)], answers)


def _kind(booster: xgboost.Booster) -> Kind:
    learner: Any = json.loads(booster.save_config())["learner"]
    wrapper = json.loads(booster.attr(_WRAPPER) or "{}")
    return Kind(
        objective=learner["objective"]["name"],
        booster=learner["gradient_booster"]["name"],
        targets=int(learner["learner_model_param"]["num_target"]),
        wrapper=wrapper.get("_estimator_type", "") if isinstance(wrapper, dict) else "",
    )


def _compute(booster: xgboost.Booster, kind: Kind) -> Callable[[Rows], Tensor]:
    """Ask the model; in place, but for linear models, which XGBoost cannot ask so."""
    if kind.booster == "gblinear":
        return lambda rows: booster.predict(xgboost.DMatrix(rows), validate_features=False)
    best = booster.attr(_BEST) if kind.wrapper else None
    trees = (0, 0 if best is None else int(best) + 1)  # (0, 0): all
    return partial(booster.inplace_predict, iteration_range=trees, validate_features=False)


def _labels(kind: Kind, said: Tensor) -> Tensor:
    """As `XGBClassifier.predict`, whose labels are numbers from 0."""
    if kind.objective in _LABELS_ALREADY:
        return said.astype(np.int64)
    if said.ndim == 1 or kind.targets > 1:
        return (said > _HALF).astype(np.int64)
    labels: Tensor = said.argmax(axis=1)
    return labels
