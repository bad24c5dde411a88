"""LightGBM models in the library's own text format, which runs no code.

The model answers as a `Booster` does, also one that a wrapper saved: the file does not tell. Of a classifier that
is the probability of class 1, or of each class; `probabilities` have a column for each class always.
"""

from __future__ import annotations

import logging
import re
from functools import partial
from typing import TYPE_CHECKING, Final

import lightgbm
import numpy as np

from serving.engines.base.datatypes import DATATYPES
from serving.engines.base.errors import LoadFailed
from serving.engines.base.folder import only_file
from serving.engines.base.reasons import reason_of
from serving.engines.base.tabular import (
    FLOATS,
    OUTPUT,
    PROBABILITIES,
    Answer,
    TabularEngine,
    as_it_is,
    both_classes,
    matrix,
    spec_of,
)
from serving.engines.trees import lightgbm_model

if TYPE_CHECKING:
    from serving.engines.base.engine import EngineOptions
    from serving.storage.base.artifact import Artifact

PLATFORM: Final = "lightgbm_booster"
SUFFIXES: Final = (".lgb", "model.txt")
_OBJECTIVE: Final = re.compile(r"^objective=(\w+)", re.MULTILINE)
_WITH_PROBABILITIES: Final = frozenset({"binary", "multiclass", "multiclassova"})

lightgbm.register_logger(logging.getLogger(__name__))  # it writes to stdout otherwise


def load(artifact: Artifact, options: EngineOptions) -> TabularEngine:
    """The model of the artifact's only `*.lgb` or `model.txt`. Raises LoadFailed, StorageError."""
    name = only_file(artifact, SUFFIXES)
    try:
        content = artifact.read(name)
        lightgbm_model.vet(content)
        text = content.decode()
        return _engine(lightgbm.Booster(model_str=text), text, options)
    except (lightgbm.basic.LightGBMError, ValueError, TypeError) as error:
        raise LoadFailed(f"LightGBM cannot load {name}: {reason_of(error)}") from error


def _engine(booster: lightgbm.Booster, text: str, options: EngineOptions) -> TabularEngine:
    features = booster.num_feature()
    compute = partial(booster.predict, num_threads=options.threads)
    said = np.asarray(compute(np.zeros((1, features), DATATYPES[FLOATS].dtype)))
    answers = [Answer(spec_of(OUTPUT, said), compute, as_it_is)]
    objective = _OBJECTIVE.search(text)
    if objective and objective[1] in _WITH_PROBABILITIES:
        read = both_classes if said.ndim == 1 else as_it_is
        answers.append(Answer(spec_of(PROBABILITIES, read(said)), compute, read))
    return TabularEngine(PLATFORM, [matrix(features)], answers)
