"""The models of the benchmark, trained or generated for each run."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import mul
from pathlib import Path

from loadtests.bench.servers import apps
from loadtests.bench.servers.load import Tensor
from tests.support import models

FLOWER = (6.8, 2.8, 4.8, 1.4)  # a versicolor
CLASSES = 3
FEATURES = len(FLOWER)
SIDE = 224  # pixels of an image, as ImageNet's classifiers take it
CHANNELS = 3
SEED = 6
NARROW, WIDE = 64, 2048  # numbers in a layer
HIDDEN = 3  # layers of WIDE x WIDE: 50 MB of weights, more than a core's own cache has
ANSWERS = 4
TRAINER = Path(apps.__file__).with_name("train_iris.py")


@dataclass(frozen=True, slots=True)
class Iris:
    """A trained classifier of flowers as `skops` and `onnx` file, a request, and the correct outputs."""

    skops: Path
    onnx: Path
    flower: Tensor
    label: Sequence[float]
    probabilities: Sequence[float]


def train(python: Path | str, folder: Path, *options: str) -> Path:
    """Train FOLDER/model.joblib with the scikit-learn of this interpreter."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run([python, TRAINER, folder, *options], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the model of scikit-learn could not be trained: {done.stderr.strip()[-2000:]}")
    return folder / "model.joblib"


def iris(folder: Path) -> Iris:
    """Train the classifier with our scikit-learn, in another process: its libraries would share memory with the
    servers.
    """
    train(sys.executable, folder, "--skops")
    weights = json.loads((folder / "weights.json").read_text())
    rows, intercepts = weights["coefficients"], weights["intercepts"]
    flower = array("f", FLOWER)
    path = folder / "iris.onnx"
    path.write_bytes(linear(rows, intercepts))
    scores = [sum(map(_product, flower, row)) + bias for row, bias in zip(rows, intercepts, strict=True)]
    tensor = Tensor("input-0", (1, FEATURES), flower.tolist(), flower.tobytes())
    return Iris(folder / "model.skops", path, tensor, (float(scores.index(max(scores))),), softmax(scores))


def linear(rows: Sequence[Sequence[float]], intercepts: Sequence[float]) -> bytes:
    """Return an ONNX model: FP32 input-0 [n, FEATURES] → probabilities [n, CLASSES]. `rows` has the weights of each
    class.
    """
    columns = [weight for feature in zip(*rows, strict=True) for weight in feature]
    return models.model(
        [
            models.node("MatMul", ["input-0", "weights"], ["products"]),
            models.node("Add", ["products", "intercepts"], ["scores"]),
            models.node("Softmax", ["scores"], ["probabilities"]),
        ],
        [models.value("input-0", models.FLOAT, ["n", FEATURES])],
        [models.value("probabilities", models.FLOAT, ["n", CLASSES])],
        [models.floats("weights", columns, (FEATURES, CLASSES)), models.floats("intercepts", intercepts, (CLASSES,))],
    )


def perceptron(folder: Path, width: int = WIDE) -> tuple[Path, Tensor, Sequence[float]]:
    """Return an ONNX model with layers of weights and ReLU, a request, and the correct output.

    FP32 x [n, NARROW] → y [n, ANSWERS]. One row takes as long as reading all weights; several rows at once read them
    once.
    """
    noise = random.Random(SEED)
    sizes = [NARROW, *[width] * (HIDDEN + 1), ANSWERS]
    layers = [_layer(noise, rows, columns) for columns, rows in pairwise(sizes)]
    values = array("f", (noise.random() for _ in range(NARROW)))
    request = Tensor("x", (1, NARROW), values.tolist(), values.tobytes())
    path = folder / "perceptron.onnx"
    path.write_bytes(_perceptron(layers))
    numbers = values.tolist()
    for rows in layers:
        numbers = [max(0.0, sum(map(mul, row, numbers))) for row in rows]
    return path, request, numbers


def _layer(noise: random.Random, rows: int, columns: int) -> list[array[float]]:
    """Return weights by output, scaled so that outputs have the size of inputs."""
    scale = math.sqrt(24 / columns)  # He's initialisation: noise of this width has a variance of 2 / columns
    return [array("f", (scale * (noise.random() - 0.5) for _ in range(columns))) for _ in range(rows)]


def _perceptron(layers: Sequence[Sequence[array[float]]]) -> bytes:
    nodes, weights, before = [], [], "x"
    for number, rows in enumerate(layers):
        after = "y" if number == len(layers) - 1 else f"layer{number}"
        nodes.append(models.node("Gemm", [before, f"weights{number}"], [f"sums{number}"], models.whole("transB", 1)))
        nodes.append(models.node("Relu", [f"sums{number}"], [after]))
        content = b"".join(row.tobytes() for row in rows)
        weights.append(models.tensor(f"weights{number}", models.FLOAT, (len(rows), len(rows[0])), content))
        before = after
    given = models.value("x", models.FLOAT, ["n", NARROW])
    return models.model(nodes, [given], [models.value("y", models.FLOAT, ["n", ANSWERS])], weights)


def image_model(folder: Path) -> Path:
    """Return an ONNX model: FP32 image [n, 3, 224, 224] → the mean of each channel. Most of the work is decoding."""
    path = folder / "image.onnx"
    path.write_bytes(
        models.model(
            [models.node("GlobalAveragePool", ["image"], ["means"])],
            [models.value("image", models.FLOAT, ["n", CHANNELS, SIDE, SIDE])],
            [models.value("means", models.FLOAT, ["n", CHANNELS, 1, 1])],
        )
    )
    return path


def image() -> tuple[Tensor, Sequence[float]]:
    """Return an image of noise (2.9 MB as JSON, 0.6 MB as bytes), and the mean of each channel."""
    noise = random.Random(SEED)
    size = SIDE * SIDE
    pixels = array("f", (noise.random() for _ in range(CHANNELS * size)))
    means = [math.fsum(pixels[start : start + size]) / size for start in range(0, len(pixels), size)]
    return Tensor("image", (1, CHANNELS, SIDE, SIDE), pixels.tolist(), pixels.tobytes()), means


def softmax(scores: Sequence[float]) -> list[float]:
    """Return probabilities from scores."""
    powers = [math.exp(score - max(scores)) for score in scores]
    return [power / sum(powers) for power in powers]


def _product(left: float, right: float) -> float:
    return left * right
