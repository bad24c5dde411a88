"""MLflow model folders as mlflow 3.17 writes them, made without mlflow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import skops.io
import yaml
from sklearn.linear_model import LogisticRegression

from tests.support.tabular import iris

COLUMNS = ("sepal length (cm)", "sepal width (cm)", "petal length (cm)", "petal width (cm)")
DOUBLES = [{"type": "double", "name": name, "required": True} for name in COLUMNS]
MATRIX = [{"type": "tensor", "tensor-spec": {"dtype": "float64", "shape": [-1, 4]}}]
FIRST = [5.1, 3.5, 1.4, 0.2]
SKLEARN = {"pickled_model": "model.skops", "serialization_format": "skops", "sklearn_version": "1.9.1", "code": None}
PYFUNC = {"loader_module": "mlflow.sklearn", "model_path": "model.skops", "predict_fn": "predict"}


@cache
def classifier() -> Any:
    """A model of the flowers, trained without names of columns."""
    return LogisticRegression(max_iter=200).fit(*iris())


@cache
def skops_bytes() -> bytes:
    """The model as skops saves it."""
    return bytes(skops.io.dumps(classifier()))


def mlmodel(
    flavors: Mapping[str, Any], inputs: Sequence[Any] | None = None, outputs: Sequence[Any] | None = None,
    params: Sequence[Any] | None = None,
) -> bytes:  # fmt: skip
    """The content of a file `MLmodel`."""
    parts = {"inputs": inputs, "outputs": outputs, "params": params}
    signature = {name: None if part is None else json.dumps(part) for name, part in parts.items()}
    document = {
        "flavors": dict(flavors), "mlflow_version": "3.17.2", "model_uuid": "c" * 32,
        "utc_time_created": "2026-11-26 04:26:06.313805",
    }  # fmt: skip
    return yaml.safe_dump(document | ({"signature": signature} if any(signature.values()) else {})).encode()


def write(folder: Path, description: bytes | None = None, **files: bytes) -> Path:
    """Write the folder of the classifier, with `__` for the dot in the names of further files."""
    folder.mkdir(parents=True, exist_ok=True)
    given = {"MLmodel": description or mlmodel({"sklearn": SKLEARN, "python_function": PYFUNC}, DOUBLES)}
    for name, content in {"model__skops": skops_bytes(), **given, **files}.items():
        (folder / name.replace("__", ".")).write_bytes(content)
    return folder


def expected() -> int:
    """The class of the first flower."""
    return int(classifier().predict(np.array([FIRST]))[0])
