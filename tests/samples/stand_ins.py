"""Stand-ins for the artifacts of KServe's samples, which are in stores of others.

Artifacts of one format and layout are a class. For each class, a model is trained here and laid out in the same way.
"""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import tabular
from tests.support.models import FLOAT, floats, model, node, value

Files = Mapping[str, bytes]
ROWS = 3


@dataclass(frozen=True, slots=True)
class Made:
    """The files of a stand-in, a request of protocol v2, and the first output for it."""

    files: Files
    request: dict[str, Any]
    expected: list[float]


def request_of(name: str, datatype: str, rows: Any) -> dict[str, Any]:
    """Return a request with one input."""
    array = np.asarray(rows)
    return {
        "inputs": [{"name": name, "datatype": datatype, "shape": list(array.shape), "data": array.ravel().tolist()}]
    }


def sklearn(_: Path) -> Made:
    """KServe's server of scikit-learn loads `model.joblib` of the folder."""
    import joblib
    from sklearn.svm import SVC

    features, kinds = tabular.iris()
    trained = SVC(gamma="scale").fit(features, kinds)
    content = io.BytesIO()
    joblib.dump(trained, content)
    rows = features[:: 150 // ROWS]
    return Made(
        {"model.joblib": content.getvalue()}, request_of("input-0", "FP64", rows), trained.predict(rows).tolist()
    )


def xgboost(_: Path) -> Made:
    """KServe's server of XGBoost loads `model.bst`."""
    import xgboost

    features, kinds = tabular.iris()
    data = xgboost.DMatrix(features, kinds)
    trained = xgboost.train({"objective": "multi:softmax", "num_class": 3, "nthread": 1}, data, 5)
    rows = features[:: 150 // ROWS]
    expected = trained.predict(xgboost.DMatrix(rows)).tolist()
    return Made({"model.bst": bytes(trained.save_raw("ubj"))}, request_of("input-0", "FP64", rows), expected)


def lightgbm(_: Path) -> Made:
    """KServe's server of LightGBM loads `model.bst`."""
    import lightgbm

    features, kinds = tabular.iris()
    options = {"objective": "multiclass", "num_class": 3, "num_threads": 1, "verbose": -1}
    trained = lightgbm.train(options, lightgbm.Dataset(features, kinds), 5)
    rows = features[:: 150 // ROWS]
    expected = np.asarray(trained.predict(rows)).ravel().tolist()
    return Made({"model.bst": trained.model_to_string().encode()}, request_of("input-0", "FP64", rows), expected)


def onnx(_: Path) -> Made:
    """A folder with `model.onnx`."""
    content = model(
        [node("Mul", ["x", "factor"], ["y"])],
        [value("x", FLOAT, ["n", 2])],
        [value("y", FLOAT, ["n", 2])],
        [floats("factor", [3])],
    )
    return Made({"model.onnx": content}, request_of("x", "FP32", [[1.0, 2.0]]), [3.0, 6.0])


def saved_model(folder: Path) -> Made:
    """Return a SavedModel y = 2x + 1 without a folder for its version."""
    script = (
        "import sys, tensorflow as tf\n"
        "module = tf.Module()\n"
        "spec = tf.TensorSpec([None, 2], tf.float32, name='x')\n"
        "module.f = tf.function(lambda x: {'y': 2 * x + 1}, input_signature=[spec])\n"
        "tf.saved_model.save(module, sys.argv[1], signatures={'serving_default': module.f})\n"
    )
    place = folder / "saved"
    subprocess.run([sys.executable, "-W", "ignore", "-c", script, str(place)], check=True, capture_output=True)
    return Made(_files(place), request_of("x", "FP32", [[1.0, 2.0]]), [3.0, 5.0])


def tensorflow(folder: Path) -> Made:
    """TensorFlow Serving loads the newest numbered version."""
    made = saved_model(folder)
    return Made({f"0001/{name}": content for name, content in made.files.items()}, made.request, made.expected)


def triton(folder: Path) -> Made:
    """A repository with one SavedModel, as that of the BERT sample."""
    made = saved_model(folder)
    config = (
        'platform: "tensorflow_savedmodel" max_batch_size: 4\n'
        'input { name: "x" data_type: TYPE_FP32 dims: [ 2 ] }\n'
        'output { name: "y" data_type: TYPE_FP32 dims: [ 2 ] }\n'
    )
    inside = {f"bert/1/model.savedmodel/{name}": content for name, content in made.files.items()}
    return Made({"bert/config.pbtxt": config.encode(), **inside}, made.request, made.expected)


def torchscript(_: Path) -> Made:
    """A repository of Triton with a model of PyTorch, which is refused."""
    config = b'name: "cifar10" platform: "pytorch_libtorch" max_batch_size: 1\n'
    return Made({"cifar10/config.pbtxt": config, "cifar10/1/model.pt": b"PK"}, {}, [])


def paddle(folder: Path) -> Made:
    """KServe's server of Paddle loads `*.pdmodel` and `*.pdiparams`."""
    command = [sys.executable, "-m", "tests.serving.engines.paddle_models", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    files = {name.replace("inference", "model"): content for name, content in _files(folder / "pdmodel").items()}
    request = {
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [2, 1], "data": [0.0, 1.0]},
            {"name": "index", "datatype": "INT32", "shape": [1], "data": [0]},
        ]
    }
    return Made(files, request, [1.0, 3.0])


MAKERS: Mapping[str, Callable[[Path], Made]] = {
    made.__name__: made for made in (sklearn, xgboost, lightgbm, onnx, tensorflow, triton, torchscript, paddle)
}
REFUSED = ("torchscript",)
"""Stand-ins that the server must refuse: no engine runs them."""


def class_of(uri: str, model_format: str) -> str:
    """Return the class of a sample's artifact, by its format and the facts about its address."""
    if not model_format:
        return "torchscript" if "torchscript" in uri else "triton"
    return {"joblib": "sklearn", "pickle": "sklearn"}.get(model_format, model_format)


def _files(folder: Path) -> Files:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
