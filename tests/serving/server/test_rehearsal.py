"""What a member does before it is claimed."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.engines.base import EngineOptions
from serving.engines.registry import FORMATS, find_format, loader_of
from serving.server.assignment import Bounds
from serving.server.limits import Limits
from serving.server.options import Pool
from serving.server.protocol_v2 import Codec
from serving.server.rehearsal import MODELS, REQUEST, rehearse
from serving.storage.artifact import Artifact


@pytest.mark.parametrize("name", MODELS)
def test_each_model_answers_the_request(name: str) -> None:
    artifact = Artifact(Path("rehearsal"), MODELS[name])
    engine = loader_of(find_format(name, ()))(artifact, EngineOptions())
    call = Codec("m", "m-00001", engine.signature, Limits()).decode(REQUEST)
    assert [tensor.tolist() for tensor in engine.infer(call.inputs, call.outputs)] == [[2.0]]


@pytest.mark.parametrize("name", [*FORMATS, "a format of tomorrow"])
def test_it_leaves_nothing_behind(name: str) -> None:
    rehearse(Pool(name, ""), Bounds(1, 1.0, 1.0), Limits())
