"""Test the class without a server: `pytest`."""

import sys
from pathlib import Path

import numpy as np
import pytest

from serving.engines.base.errors import InputRefused

sys.dont_write_bytecode = True  # the folder `model` is deployed as it is

from model.model import Model  # noqa: E402


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
