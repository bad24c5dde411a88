"""LightGBM models in the library's own text format, which runs no code.

`output-0` is the result of `Booster.predict`, even for a model that a scikit-learn wrapper saved: the file does not
record the wrapper. A classifier returns the probability of class 1, or of each class with more than two.
`probabilities` always has a column for each class.
"""

from __future__ import annotations

import logging
import re
from functools import partial
from typing import TYPE_CHECKING, Final

import lightgbm
import numpy as np

from serving.engines.base.datatypes import DATATYPES
from serving.engines.base.errors import LoadFailed, short_reason
from serving.engines.base.folder import only_file
from serving.engines.base.tabular import (
    FLOATS,
    OUTPUT,
    PROBABILITIES,
    TabularEngine,
    TabularOutput,
    both_classes,
    identity,
    matrix_input,
    output_spec,
)
from serving.engines.trees import lightgbm_model

if TYPE_CHECKING:
    from serving.engines.base.engine import EngineOptions
    from serving.storage.base.artifact import Artifact

PLATFORM: Final = "lightgbm_booster"
SUFFIXES: Final = (".lgb", "model.txt")
_OBJECTIVE: Final = re.compile(r"^objective=(\w+)", re.MULTILINE)
_WITH_PROBABILITIES: Final = frozenset({"binary", "multiclass", "multiclassova"})

lightgbm.register_logger(logging.getLogger(__name__))  # its default writes to stdout


def load(artifact: Artifact, options: EngineOptions) -> TabularEngine:
    """Load the artifact's only `*.lgb` file or `model.txt`. Raises LoadFailed, StorageError."""
    name = only_file(artifact, SUFFIXES)
    try:
        content = artifact.read(name)
        lightgbm_model.vet(content)
        text = content.decode()
        return _engine(lightgbm.Booster(model_str=text), text, options)
    except (lightgbm.basic.LightGBMError, ValueError, TypeError) as error:
        raise LoadFailed(f"LightGBM cannot load {name}: {short_reason(error)}") from error


def _engine(booster: lightgbm.Booster, text: str, options: EngineOptions) -> TabularEngine:
    features = booster.num_feature()
    compute = partial(booster.predict, num_threads=options.threads)
    result = np.asarray(compute(np.zeros((1, features), DATATYPES[FLOATS].dtype)))
    outputs = [TabularOutput(output_spec(OUTPUT, result), compute, identity)]
    objective = _OBJECTIVE.search(text)
    if objective and objective[1] in _WITH_PROBABILITIES:
        read = both_classes if result.ndim == 1 else identity
        outputs.append(TabularOutput(output_spec(PROBABILITIES, read(result)), compute, read))
    return TabularEngine(PLATFORM, [matrix_input(features)], outputs)
