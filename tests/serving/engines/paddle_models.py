"""Trains and saves the model of the PaddlePaddle tests, in a process that may import it:

    python -m tests.serving.engines.paddle_models FOLDER

In both forms: FOLDER/json/inference.json and FOLDER/pdmodel/inference.pdmodel, with their parameters.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that a compiler's cache is missing
    import paddle

STEPS = 60  # of training
LAYER: Any = paddle.nn.Layer  # whether or not the type checker follows the library


class Line(LAYER):  # type: ignore[misc]
    """Outputs y = 2x + 1 (trained), whether each is above zero, and the rows of y at `index`."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = paddle.nn.Linear(1, 1)

    def forward(self, x: Any, index: Any) -> Any:
        """Return all three outputs."""
        y = self.linear(x)
        return y, paddle.cast(y > 0, "int64"), paddle.gather(y, index)

    def train_on_points(self) -> None:
        """Train the model by gradient descent."""
        x = paddle.to_tensor(np.linspace(-1, 1, 50, dtype=np.float32).reshape(-1, 1))
        descent = paddle.optimizer.SGD(learning_rate=0.3, parameters=self.parameters())
        for _ in range(STEPS):
            loss = paddle.mean((self.linear(x) - (2 * x + 1)) ** 2)
            loss.backward()
            descent.step()
            descent.clear_grad()
        self.eval()


def save(layer: Any, folder: Path) -> None:
    """Save the model as `inference.*` in the folder."""
    specs = [paddle.static.InputSpec([None, 1], "float32", "x"), paddle.static.InputSpec([None], "int32", "index")]
    paddle.jit.save(layer, str(folder / "inference"), input_spec=specs)


def main(folder: Path) -> None:
    """Save the model in both formats."""
    line = Line()
    line.train_on_points()
    save(line, folder / "json")
    with paddle.pir_utils.DygraphOldIrGuard():
        old = Line()
        old.set_state_dict(line.state_dict())
        old.eval()
        save(old, folder / "pdmodel")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
