"""Test the class without a server: `python download.py`, then `pytest`."""

from pathlib import Path

import numpy as np
from model.model import Model


def test_each_text_has_a_label_and_a_score() -> None:
    model = Model()
    model.load(Path(__file__).parent / "model")
    made = model.predict(np.array([b"What a lovely day.", b"This is a sad film."], dtype=object))

    assert set(made["label"]) <= set(model.labels)
    assert ((made["score"] > 1 / len(model.labels)) & (made["score"] <= 1)).all()
