"""A linear model: y = weights · x + bias. Replace it by your own code."""

import json

import numpy as np

from serving.engines.base.errors import InputRefused


class Model:
    """The class that Knodel serves."""

    inputs = [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
    outputs = [{"name": "y", "datatype": "FP32", "shape": [-1]}]
    thread_safe = True  # otherwise one call at a time

    def load(self, folder):
        """Read the parameters; `folder` is the path of this file's folder."""
        parameters = json.loads((folder / "parameters.json").read_text())
        self.weights = np.array(parameters["weights"], np.float32)
        self.bias = np.float32(parameters["bias"])

    def predict(self, x):
        """Return y for each row of x."""
        if not np.isfinite(x).all():
            raise InputRefused("x has a value that is not finite")  # the caller's fault: 400; other errors are 500
        return x @ self.weights + self.bias
