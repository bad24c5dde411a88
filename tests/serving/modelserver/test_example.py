"""A model with an `example.json` is warmed up with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from serving.engines.base.engine import EngineOptions
from serving.engines.base.errors import LoadFailed
from serving.modelserver.base.assignment import Assignment, ModelBounds
from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.base.stats import StartupTimes
from serving.modelserver.execution.lifecycle import ServedModel
from serving.modelserver.execution.loading import load_model
from serving.storage.fetch import fetch

PICKY = """
class Model:
    def load(self):
        self.seen = []

    def predict(self, x):
        self.seen.append(x.tolist())
        if x.sum() == 0:
            raise ValueError("a meaning is needed")
        return x
"""


def loaded(folder: Path, example: Any, warm: bool = True, limits: ServerLimits | None = None) -> ServedModel:
    """Load the model of a folder with this example."""
    folder.mkdir()
    (folder / "model.py").write_text(PICKY)
    if example is not None:
        (folder / "example.json").write_text(example if isinstance(example, str) else json.dumps(example))
    assignment = Assignment("m", "m-00001", folder.as_uri(), "", "python", ModelBounds(1, 1.0, 1.0))
    artifact = fetch(folder.as_uri(), "", folder.parent / "cache", frozenset())
    options = EngineOptions(allow_code=True)
    return load_model(
        assignment, lambda: artifact, limits or ServerLimits(), StartupTimes(), engine_options=options, warm=warm
    )


def request(*data: float, **more: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "input-0", "datatype": "FP64", "shape": [len(data)], "data": list(data), **more}]}


def seen(served: ServedModel) -> Any:
    """Return all inputs that the model has received."""
    engine: Any = served.engine
    return engine._pipeline._stages.predict.__self__.seen


def test_an_example_is_what_the_model_is_warmed_up_with(tmp_path: Path) -> None:
    served = loaded(tmp_path / "m", request(1, 2))
    assert served.pace is not None
    assert seen(served) and set(map(tuple, seen(served))) == {(1.0, 2.0)}


@pytest.mark.parametrize("warm", [True, False])
def test_the_model_shows_its_example_unless_it_is_large(tmp_path: Path, warm: bool) -> None:
    served = loaded(tmp_path / "m", request(1, 2), warm=warm)
    assert json.loads(served.example or b"") == request(1, 2)
    assert loaded(tmp_path / "large", request(*range(50_000)), warm=warm).example is None


def test_without_one_invented_inputs_may_be_refused(tmp_path: Path) -> None:
    served = loaded(tmp_path / "m", None)
    assert served.pace is None and seen(served) == [0.0]


def test_who_is_not_to_warm_up_does_not_look_at_the_example(tmp_path: Path) -> None:
    assert seen(loaded(tmp_path / "m", "no JSON", warm=False)) == []


@pytest.mark.parametrize(
    ("example", "words"),
    [
        ("no JSON", "example.json is not a valid request for the model: the body is not JSON"),
        ({"inputs": []}, "example.json is not a valid request for the model: .*'input-0'"),
        (request(1, name="x"), "no input 'x'"),
        (request(1, datatype="INT64"), "is INT64: the model expects FP64"),
        (request(1, 2, shape=[3]), "3 elements"),
        (request(0), "the model fails on its own example: ValueError: a meaning is needed"),
    ],
)
def test_an_example_that_does_not_fit_is_refused_with_what_is_wrong(tmp_path: Path, example: Any, words: str) -> None:
    with pytest.raises(LoadFailed, match=words):
        loaded(tmp_path / "m", example)


def test_an_example_is_no_larger_than_a_request_may_be(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match=r"example\.json has \d+ bytes, more than the 50 bytes of a request"):
        loaded(tmp_path / "m", request(1), limits=ServerLimits(body=50))
