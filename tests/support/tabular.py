"""What tests of the engines of rows share: the flowers, artifacts of one file, and how an engine is asked."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_iris

from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import Engine
from serving.storage.base.artifact import Artifact

URI = "file:///models/m"


@cache
def iris() -> tuple[Tensor, Tensor]:
    """150 flowers: four lengths each [150, 4], and of which of three kinds they are [150]."""
    features, kinds = load_iris(return_X_y=True)
    return features, kinds


def two_kinds() -> tuple[Tensor, Tensor]:
    """100 flowers of two kinds that are not told apart easily."""
    features, kinds = iris()
    chosen = kinds > 0
    return features[chosen], kinds[chosen] - 1


def file(content: bytes, name: str = "model") -> Artifact:
    """An artifact of one file."""
    return Artifact(Path(name), content, uri=URI)


def folder(path: Path, **files: bytes) -> Artifact:
    """An artifact of a folder; in the names of its files `__` stands for the dot."""
    path.mkdir(exist_ok=True)
    for name, content in files.items():
        (path / name.replace("__", ".")).write_bytes(content)
    return Artifact(path, None, uri=URI)


def ask(engine: Engine, output: str, *inputs: Any) -> Tensor:
    """One output for inputs in the order of the signature, as the codec gives them: FP64, or objects."""
    specs = engine.signature.inputs
    given = {
        spec.name: np.asarray(value, dtype=object if spec.datatype == "BYTES" else np.float64)
        for spec, value in zip(specs, inputs, strict=True)
    }
    (answer,) = engine.infer(given, [output])
    return answer


def described(engine: Engine) -> dict[str, tuple[str, tuple[int, ...] | None]]:
    """Datatype and shape of each output."""
    return {spec.name: (spec.datatype, spec.shape) for spec in engine.signature.outputs}


def inputs_of(engine: Engine) -> dict[str, tuple[str, tuple[int, ...] | None]]:
    """Datatype and shape of each input."""
    return {spec.name: (spec.datatype, spec.shape) for spec in engine.signature.inputs}
