"""Load Python models from the text of a `model.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import Cancellation, EngineOptions
from serving.engines.python.engine import PythonEngine, load
from serving.storage.fetch import fetch

ALLOWED = EngineOptions(allow_code=True)
ONE = {"input-0": np.array([1.0, 2.0])}
Load = Callable[..., PythonEngine]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Load]:
    """Return a function that loads a `model.py` of this text, with other files beside it."""
    loaded: list[PythonEngine] = []

    def make(code: str, **beside: str) -> PythonEngine:
        folder = tmp_path / "model"
        folder.mkdir()
        (folder / "model.py").write_text(dedent(code))
        for name, text in beside.items():
            (folder / f"{name}.py").write_text(dedent(text))
        loaded.append(load(fetch(folder.as_uri(), "", tmp_path, frozenset()), ALLOWED))
        return loaded[-1]

    yield make
    for one in loaded:
        one.close()


def first(engine: PythonEngine, inputs: dict[str, Tensor] = ONE, cancellation: Cancellation | None = None) -> Tensor:
    """Return the first output for `inputs`."""
    return engine.infer(inputs, [engine.signature.outputs[0].name], cancellation)[0]
