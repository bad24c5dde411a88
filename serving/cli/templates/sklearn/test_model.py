"""Test the trained model: `python train.py`, then `pytest`."""

import json
from pathlib import Path

import numpy as np
import skops.io

FOLDER = Path(__file__).parent / "model"


def test_the_example_is_classified() -> None:
    (rows,) = json.loads((FOLDER / "example.json").read_text())["inputs"]
    model = skops.io.load(FOLDER / "model.skops")

    assert model.predict(np.array(rows["data"]).reshape(rows["shape"])).tolist() == [0, 1]
