"""Test the class without a server: `pytest`."""

from pathlib import Path

import numpy as np
import pytest
from model.model import Model

from serving.engines.base.errors import InputRefused


@pytest.fixture
def model() -> Model:
    """Return the loaded model."""
    made = Model()
    made.load(Path(__file__).parent / "model")
    return made


def test_a_row_has_one_result(model: Model) -> None:
    assert model.predict(np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)).tolist() == [0.5, 2.5]


def test_bad_input_is_refused(model: Model) -> None:
    with pytest.raises(InputRefused):
        model.predict(np.array([[np.nan, 0.0]], np.float32))
