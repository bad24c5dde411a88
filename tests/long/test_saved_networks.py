"""Models of Keras and PaddlePaddle give their own numbers when they are served. Both take seconds to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

KERAS = """
import sys, pathlib
import keras, numpy as np
from knodel.saving.save import save
from serving.engines.base.engine import EngineOptions
from serving.engines.tensorflow.engine import load
from serving.storage.base.artifact import Artifact

model = keras.Sequential([keras.layers.Input((4,), name="flowers"), keras.layers.Dense(3, activation="softmax")])
rows = np.random.default_rng(0).random((5, 4), dtype=np.float32)
saved = save(model, pathlib.Path(sys.argv[1]) / "m", example={"flowers": rows[:2]})
engine = load(Artifact(saved.path, None), EngineOptions())
assert saved.model_format == "tensorflow" and not saved.runs_code
assert saved.inputs == engine.signature.inputs, (saved.inputs, engine.signature.inputs)
(result,) = engine.infer({"flowers": rows}, engine.signature.default_outputs)
np.testing.assert_allclose(result, model.predict(rows, verbose=0), rtol=1e-6)
"""


PADDLE = """
import sys, pathlib
import paddle, numpy as np
from knodel.saving.errors import NotSaved
from knodel.saving.save import save
from serving.engines.base.engine import EngineOptions
from serving.engines.paddle.engine import load
from serving.storage.base.artifact import Artifact

layer = paddle.nn.Sequential(paddle.nn.Linear(4, 3), paddle.nn.Softmax())
rows = np.random.default_rng(0).random((5, 4), dtype=np.float32)
saved = save(layer, pathlib.Path(sys.argv[1]) / "m", example={"flowers": rows[:2].astype(float)})
engine = load(Artifact(saved.path, None), EngineOptions())
assert saved.model_format == "paddle" and not saved.runs_code and layer.training
assert saved.inputs == engine.signature.inputs, (saved.inputs, engine.signature.inputs)
(result,) = engine.infer({"flowers": rows}, engine.signature.default_outputs)
np.testing.assert_allclose(result, layer(paddle.to_tensor(rows)).numpy(), rtol=1e-5)
engine.close()
try:
    save(layer, pathlib.Path(sys.argv[1]) / "w")
except NotSaved as error:
    assert "the Sequential needs an example, from which its inputs are taken" in str(error)
else:
    raise AssertionError("saved without an example")
"""


@pytest.mark.parametrize("script", [KERAS, PADDLE], ids=["keras", "paddle"])
def test_a_model_gives_its_own_numbers(script: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
