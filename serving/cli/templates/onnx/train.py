"""Train a classifier of points in the plane, and export it to ONNX in the folder `model`.

With another framework, replace `train` and `export`: `torch.onnx.export`, `skl2onnx.to_onnx` and `tf2onnx` write the
same kind of file.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FILE = Path(__file__).parent / "model" / "model.onnx"


def points(count, seed):
    """Return points around (0, 0) and (2, 2), and the class of each."""
    random = np.random.default_rng(seed)
    classes = random.integers(0, 2, count)
    return random.normal(2.0 * classes[:, None], 0.7, (count, 2)).astype(np.float32), classes


def train(x, classes):
    """Return weights and bias of a logistic regression, by gradient descent."""
    weights, bias = np.zeros(2, np.float32), np.float32(0.0)
    for _ in range(500):
        error = 1 / (1 + np.exp(-(x @ weights + bias))) - classes
        weights -= 0.1 * (x.T @ error / len(x)).astype(np.float32)
        bias -= np.float32(0.1 * error.mean())
    return weights, bias


def export(weights, bias):
    """Return the ONNX model: x FP32[-1,2] → probability FP32[-1,1]."""
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "weights", "bias"], ["z"]),
            helper.make_node("Sigmoid", ["z"], ["probability"]),
        ],
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 2])],
        [helper.make_tensor_value_info("probability", TensorProto.FLOAT, ["rows", 1])],
        [numpy_helper.from_array(weights[:, None], "weights"), numpy_helper.from_array(np.array([bias]), "bias")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def main() -> None:
    """Train, print the accuracy, and store the model."""
    weights, bias = train(*points(400, seed=0))
    x, classes = points(200, seed=1)
    accuracy = ((x @ weights + bias > 0) == classes).mean()
    onnx.save(export(weights, bias), FILE)
    print(f"accuracy {accuracy:.3f}, stored in {FILE}")


if __name__ == "__main__":
    main()
