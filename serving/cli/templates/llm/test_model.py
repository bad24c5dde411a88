"""Test the class without a server: `python download.py`, then `pytest`."""

from pathlib import Path

import numpy as np
import pytest
from model.model import Model

from serving.engines.base.errors import InputRefused


@pytest.fixture(scope="module")
def model() -> Model:
    """Return the loaded model."""
    made = Model()
    made.load(Path(__file__).parent / "model")
    return made


def test_a_prompt_has_an_answer_in_parts(model: Model) -> None:
    parts = list(model.predict(np.array([b"Name three colours."], dtype=object), np.array([8])))

    assert 0 < len(parts) <= 8


def test_a_length_that_is_impossible_is_refused(model: Model) -> None:
    with pytest.raises(InputRefused):
        next(model.predict(np.array([b"x"], dtype=object), np.array([0])))
