"""Test the exported model: `python train.py`, then `pytest`."""

import json
from pathlib import Path

import numpy as np
import onnxruntime

FOLDER = Path(__file__).parent / "model"


def test_the_example_is_classified() -> None:
    (rows,) = json.loads((FOLDER / "example.json").read_text())["inputs"]
    x = np.array(rows["data"], np.float32).reshape(rows["shape"])
    session = onnxruntime.InferenceSession(FOLDER / "model.onnx", providers=["CPUExecutionProvider"])
    (probability,) = session.run(["probability"], {"x": x})

    assert (probability[:, 0] > 0.5).tolist() == [False, True]
