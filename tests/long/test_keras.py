"""A Keras model in memory is saved, served and gives its own numbers. Here, because Keras takes seconds to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
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


def test_a_keras_model_gives_its_own_numbers(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
