"""An engine uses the threads that it is granted, as the kernel and the libraries say. Each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest
import xgboost

from loadtests.bench.processes import tasks_of
from serving.engines.base.engine import EngineOptions
from serving.engines.base.registry import find_format, find_loader
from serving.engines.paddle.engine import load as load_paddle
from serving.storage.base.artifact import Artifact
from tests.support import models
from tests.support.tabular import iris

ROWS = 50_000  # so that no library thinks that one thread is enough
GRANTED = [1, 2]  # XGBoost takes no more than the machine has cores

TENSORFLOW = """
import sys, numpy as np
from pathlib import Path
from serving.engines.base.engine import EngineOptions
from serving.engines.tensorflow.engine import load
from serving.engines.tensorflow.library import tensorflow as tf
from serving.storage.base.artifact import Artifact

folder, threads = Path(sys.argv[1]), int(sys.argv[2])
if not threads:
    module = tf.Module()
    spec = tf.TensorSpec([None], tf.float32, name="x")
    module.double = tf.function(lambda x: {"y": 2 * x}, input_signature=[spec])
    tf.saved_model.save(module, str(folder), signatures=module.double)
else:
    made = load(Artifact(folder, None), EngineOptions(threads=threads))
    assert made.infer({"x": np.ones(1, np.float32)}, ["y"])[0].tolist() == [2.0]
    asked = tf.config.threading
    print(asked.get_intra_op_parallelism_threads(), asked.get_inter_op_parallelism_threads())
"""


def main(path: Path, threads: int) -> None:
    """Print by how many threads the process grows with the model."""
    load = find_loader(find_format("", [path.name]))
    before = tasks_of(os.getpid())
    engine = load(Artifact(path, path.read_bytes()), EngineOptions(threads))
    engine.infer(rows(engine), [engine.signature.outputs[0].name])
    print(tasks_of(os.getpid()) - before)


def rows(engine: Any) -> Any:
    (spec,) = engine.signature.inputs
    return {spec.name: np.ones(ROWS, np.float32) if spec.datatype == "FP32" else np.ones((ROWS, 4))}


def granted(threads: int) -> dict[str, str]:
    """The environment in which a server that is granted so many imports its libraries."""
    return {**os.environ, "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a model for each library."""
    made: Path = tmp_path_factory.mktemp("models")
    features, kinds = iris()
    booster = lightgbm.train({"objective": "regression", "verbose": -1}, lightgbm.Dataset(features, kinds), 5)
    booster.save_model(made / "m.lgb")
    xgboost.train({"nthread": 1}, xgboost.DMatrix(features, kinds), 5).save_model(made / "m.ubj")
    (made / "m.onnx").write_bytes(models.double())
    return made


@pytest.mark.parametrize("threads", GRANTED)
@pytest.mark.parametrize("model", ["m.onnx", "m.lgb", "m.ubj"])
def test_an_engine_starts_no_more_threads_than_it_is_granted(folder: Path, model: str, threads: int) -> None:
    command = [sys.executable, "-m", "tests.long.test_threads", str(folder / model), str(threads)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=granted(threads))
    assert int(done.stdout) == threads - 1


def test_tensorflow_has_pools_of_the_threads_that_it_is_granted(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TENSORFLOW, str(tmp_path / "model")]
    subprocess.run([*command, "0"], check=True)
    for threads in GRANTED:
        done = subprocess.run([*command, str(threads)], check=True, stdout=subprocess.PIPE, text=True)
        assert done.stdout.split() == [str(threads)] * 2


def test_paddle_starts_a_thread_for_each_that_it_is_granted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    command = [sys.executable, "-m", "tests.serving.engines.paddle_models", str(tmp_path)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    counts = []
    for threads in (1, 2, 3):  # from 2 on it has two more, of its own
        engine = load_paddle(Artifact(tmp_path / "json", None), EngineOptions(threads=threads))
        try:
            names = [spec.name for spec in engine.signature.outputs]
            engine.infer({"x": np.ones((ROWS, 1), np.float32), "index": np.zeros(1, np.int32)}, names)
            assert engine._child is not None
            counts.append(tasks_of(engine._child.pid))
        finally:
            engine.close()
    assert counts[0] < counts[1] and counts[2] - counts[1] == 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
