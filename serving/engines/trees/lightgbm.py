"""LightGBM models in the library's own text format, which runs no code.

`output-0` is the result of `Booster.predict`, also for a model of a scikit-learn wrapper: LightGBM's text does not
record the wrapper. A classifier returns the probability of class 1, or of each class with more than two.
`probabilities` always has a column for each class.

`knodel.saving` adds the labels of a classifier, as the line `scikit_learn:{"classes": […]}` after LightGBM's own lines.
`output-0` is then the label, as `LGBMClassifier.predict` returns it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import lightgbm
import numpy as np

from serving.engines.base.datatypes import DATATYPES, Tensor
from serving.engines.base.errors import LoadFailed, short_reason
from serving.engines.base.folder import only_file
from serving.engines.base.tabular import (
    FLOATS,
    OUTPUT,
    PROBABILITIES,
    TabularEngine,
    TabularOutput,
    as_tensor,
    both_classes,
    identity,
    matrix_input,
    output_spec,
)
from serving.engines.base.tensors import require
from serving.engines.trees import lightgbm_model

if TYPE_CHECKING:
    from serving.engines.base.engine import EngineOptions
    from serving.storage.base.artifact import Artifact

PLATFORM: Final = "lightgbm_booster"
SUFFIXES: Final = (".lgb", "model.txt", ".bst")  # the last as KServe's server loads it
_OBJECTIVE: Final = re.compile(r"^objective=(\w+)", re.MULTILINE)
_WRAPPER: Final = re.compile(r"^scikit_learn:(.*)$", re.MULTILINE)
_WITH_PROBABILITIES: Final = frozenset({"binary", "multiclass", "multiclassova"})

lightgbm.register_logger(logging.getLogger(__name__))  # its default writes to stdout


def load(artifact: Artifact, options: EngineOptions) -> TabularEngine:
    """Load the artifact's only `*.lgb` or `*.bst` file, or `model.txt`. Raises LoadFailed, StorageError."""
    name = only_file(artifact, SUFFIXES)
    try:
        content = artifact.read(name)
        lightgbm_model.vet(content)
        text = content.decode()
        return _engine(lightgbm.Booster(model_str=text), text, options)
    except (lightgbm.basic.LightGBMError, ValueError, TypeError, LookupError) as error:
        raise LoadFailed(f"LightGBM cannot load {name}: {short_reason(error)}") from error


def _engine(booster: lightgbm.Booster, text: str, options: EngineOptions) -> TabularEngine:
    features = booster.num_feature()
    compute = partial(booster.predict, num_threads=options.threads)
    result = np.asarray(compute(np.zeros((1, features), DATATYPES[FLOATS].dtype)))
    inputs = [matrix_input(features, lightgbm_model.columns_of(booster.feature_name()))]
    objective = _OBJECTIVE.search(text)
    if objective is None or objective[1] not in _WITH_PROBABILITIES:
        outputs = [TabularOutput(output_spec(OUTPUT, result), compute, identity)]
        return TabularEngine(PLATFORM, inputs, outputs)
    probabilities = both_classes if result.ndim == 1 else identity
    labels = _labels(text, probabilities(result).shape[1])
    read = identity if labels is None else partial(_label, labels, probabilities)
    outputs = [
        TabularOutput(output_spec(OUTPUT, read(result)), compute, read),
        TabularOutput(output_spec(PROBABILITIES, probabilities(result)), compute, probabilities),
    ]
    return TabularEngine(PLATFORM, inputs, outputs)


def _labels(text: str, classes: int) -> Tensor | None:
    """Return the labels of the classes, None when the file has none. Raises ValueError for another number of labels."""
    found = _WRAPPER.search(text)
    if found is None:
        return None
    wrapper = json.loads(found[1])
    labels = as_tensor(np.array(wrapper["classes"] if isinstance(wrapper, dict) else ()))
    require(labels.shape == (classes,))
    return labels


def _label(labels: Tensor, probabilities: Callable[[Tensor], Tensor], result: Tensor) -> Tensor:
    """Return the label of the most probable class of each row."""
    label: Tensor = labels[probabilities(result).argmax(axis=1)]
    return label
