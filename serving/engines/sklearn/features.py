"""Determine the inputs of a fitted scikit-learn estimator: a matrix of numbers, strings, or columns by name.

An estimator does not record which of its columns are strings, but its first steps do. Encoders keep the categories of
their columns, imputers the values that they fill in, and vectorizers have a tag for strings. So callers need no data
frame, even for a model that was fitted on one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags

from serving.engines.base.datatypes import BYTES, DATATYPES, Tensor
from serving.engines.base.engine import ANY, TensorSpec
from serving.engines.base.errors import InputRefused, LoadFailed
from serving.engines.base.tabular import FLOATS, INPUT, Rows, matrix_input, matrix_rows
from serving.engines.base.tensors import as_text

SOME_TEXT: Final = "text"
"""The example value of a vectorizer."""


@dataclass(frozen=True, slots=True)
class Features:
    """The inputs of an estimator, a function that converts them to rows, and an example row of known values."""

    specs: tuple[TensorSpec, ...]
    rows: Callable[[Mapping[str, Tensor]], Rows]
    example: Rows


def features_of(model: Any) -> Features:
    """Return the inputs of a fitted estimator. Raises LoadFailed."""
    first, count, names = (
        _first(model),
        getattr(model, "n_features_in_", None),
        getattr(model, "feature_names_in_", None),
    )
    if count is None and isinstance(first, BaseEstimator) and not get_tags(first).input_tags.two_d_array:
        return _vectorizer_features(first)
    if names is not None and len(set(names)) < len(names):
        names = None  # duplicate names cannot be inputs: all columns are numbered
    used = _columns(first, count or 0)
    width = count or 0
    texts = sum(isinstance(value, str) for value in used.values())
    if texts == width > 0 and names is None:
        spec = TensorSpec(INPUT, BYTES, (ANY, width))
        return Features((spec,), _text_rows, np.array([[used[at] for at in range(width)]], dtype=object))
    if texts or names is not None:
        return _column_features(used, width, names)
    example = [[used.get(at, 0.0) for at in range(count or 1)]]
    return Features((matrix_input(count),), matrix_rows, np.array(example, DATATYPES[FLOATS].dtype))


def by_position(transformer: ColumnTransformer) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, step and columns of each step, the columns as positions; one position where the step has one column.

    A transformer that was fitted on a data frame has the names of its columns, and then accepts only data frames.
    """
    positions = transformer._transformer_to_input_indices
    for name, step, columns in transformer.transformers_:
        found = [int(position) for position in positions.get(name, ())]
        yield name, step, found[0] if np.isscalar(columns) and found else found


class NamedColumns:
    """Build rows from an input for each column. Columns that the estimator drops are not inputs, and are 0."""

    def __init__(self, columns: Mapping[int, TensorSpec], width: int) -> None:
        self._columns = columns
        self._width = width
        texts = any(spec.datatype == BYTES for spec in columns.values())
        self._dtype = DATATYPES[BYTES if texts else FLOATS].dtype

    def __call__(self, inputs: Mapping[str, Tensor]) -> Rows:
        """Return the rows. Raises InputRefused."""
        lengths = {len(tensor) for tensor in inputs.values()}
        if len(lengths) != 1:
            raise InputRefused(f"the inputs have {sorted(lengths)} elements: each needs the same number of rows")
        rows = np.zeros((lengths.pop(), self._width), self._dtype)
        for position, spec in self._columns.items():
            column = inputs[spec.name]
            rows[:, position] = as_text(column) if spec.datatype == BYTES else column
        return rows


def _vectorizer_features(vectorizer: BaseEstimator) -> Features:
    if not get_tags(vectorizer).input_tags.string:
        raise LoadFailed(f"a {type(vectorizer).__name__} accepts neither numbers nor strings: it cannot be served")
    return Features((TensorSpec(INPUT, BYTES, (ANY,)),), _text_rows, np.array([SOME_TEXT], dtype=object))


def _column_features(used: Mapping[int, Any], width: int, names: Sequence[str] | None) -> Features:
    columns = {
        at: TensorSpec(
            f"input-{at}" if names is None else str(names[at]), BYTES if isinstance(used[at], str) else FLOATS, (ANY,)
        )
        for at in sorted(used)
    }
    rows = NamedColumns(columns, width)
    example = {spec.name: np.array([used[at]], DATATYPES[spec.datatype].dtype) for at, spec in columns.items()}
    return Features(tuple(columns.values()), rows, rows(example))


def _text_rows(inputs: Mapping[str, Tensor]) -> Rows:
    return as_text(inputs[INPUT])


def _first(step: Any) -> Any:
    """Return the step that gets the input."""
    while True:
        if isinstance(step, Pipeline):
            step = next((inner for _, inner in step.steps if inner not in (None, "passthrough")), None)
        elif isinstance(step, FeatureUnion):
            step = step.transformer_list[0][1]
        elif hasattr(step, "best_estimator_"):  # of a hyperparameter search
            step = step.best_estimator_
        else:
            return step


def _columns(step: Any, count: int) -> dict[int, Any]:
    """Return an example value of each of the `count` columns that the step uses; a string for a column of strings."""
    step = _first(step)
    if isinstance(step, ColumnTransformer):
        return _columns_of_all(step)
    seen = getattr(step, "categories_", None)
    if seen is not None:
        return {at: _example_value(categories) for at, categories in enumerate(seen)}
    filled = getattr(step, "statistics_", None)
    if isinstance(filled, np.ndarray) and filled.dtype == object:
        return {at: _example_value([value]) for at, value in enumerate(filled)}
    if isinstance(step, BaseEstimator) and get_tags(step).input_tags.string:
        return {0: SOME_TEXT}
    return dict.fromkeys(range(count), 0.0)


def _columns_of_all(transformer: ColumnTransformer) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for _, step, columns in by_position(transformer):
        if step == "drop":
            continue
        positions = [columns] if isinstance(columns, int) else columns
        inner = _columns(step, len(positions))
        for index, position in enumerate(positions):
            if not isinstance(found.get(position), str):
                found[position] = inner.get(index, 0.0)
    return found


def _example_value(seen: Sequence[Any]) -> Any:
    """Return a string among the values of a column if there is one, else a number."""
    text = next((value for value in seen if isinstance(value, str)), None)
    if text is not None:
        return str(text)
    return next((float(value) for value in seen if isinstance(value, int | float | np.number)), 0.0)
