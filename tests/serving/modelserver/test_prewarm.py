"""Prewarming of a pool member before its claim."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.engines.base.engine import EngineOptions
from serving.engines.base.registry import FORMATS, find_loader
from serving.modelserver.base.assignment import ModelBounds
from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.base.options import Pool
from serving.modelserver.codec.protocol_v2 import V2Codec
from serving.modelserver.pool.prewarm import MODELS, prewarm, request_of
from serving.storage.base.artifact import Artifact


@pytest.mark.parametrize("name", MODELS)
def test_each_model_answers_the_request(name: str) -> None:
    made = FORMATS[name]
    artifact = Artifact(Path("prewarm" + made.suffixes[0]), MODELS[name]())
    engine = find_loader(made)(artifact, EngineOptions())
    call = V2Codec("m", "m-00001", engine.signature, ServerLimits()).decode(request_of(engine.signature))
    (answer,) = engine.infer(call.inputs, call.outputs)
    assert answer.shape[0] == 1
    engine.close()


@pytest.mark.parametrize("name", [*FORMATS, "a format of tomorrow"])
def test_it_leaves_nothing_behind(name: str) -> None:
    prewarm(Pool(name), ModelBounds(1, 1.0, 1.0), ServerLimits())  # the first time libraries take what they keep
    files, threads = open_now()
    prewarm(Pool(name), ModelBounds(1, 1.0, 1.0), ServerLimits())
    assert open_now()[0] <= files and open_now()[1] <= threads


def open_now() -> tuple[int, int]:
    """Return the numbers of open files and of threads of this process."""
    files, threads = (len(list(Path(f"/proc/self/{name}").iterdir())) for name in ("fd", "task"))
    return files, threads
