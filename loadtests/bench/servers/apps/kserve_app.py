"""A subclass of `kserve.Model` for a scikit-learn (.joblib) or an ONNX (.onnx) file, as in KServe's documentation.

    python kserve_app.py --http_port N --grpc_port N --model_name NAME --path FILE [--silent]

`--silent` disables the log lines of KServe and of its HTTP server for each request.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer, model_server

TYPES = {"int64": "INT64", "float32": "FP32", "float64": "FP64"}
LOGGERS = ("kserve", "kserve.trace", "uvicorn.access")


class Served(Model):  # type: ignore[misc] # not installed here, so it is Any
    """A model with one file. Each of its outputs is an output of the response."""

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(name)
        self._path = path
        self._run: Callable[[Any], list[tuple[str, Any]]]
        self.load()

    def load(self) -> bool:
        """Load the file."""
        self._run = _sklearn(self._path) if self._path.suffix == ".joblib" else _onnx(self._path)
        self.ready = True
        return self.ready

    def predict(self, payload: InferRequest, headers: Any = None, response_headers: Any = None) -> InferResponse:
        """Answer one request."""
        outputs = []
        for name, array in self._run(payload.inputs[0].as_numpy()):
            output = InferOutput(name=name, shape=list(array.shape), datatype=TYPES[str(array.dtype)])
            output.set_data_from_numpy(array, binary_data=False)
            outputs.append(output)
        return InferResponse(response_id=payload.id or "", model_name=self.name, infer_outputs=outputs)


def _sklearn(path: Path) -> Callable[[Any], list[tuple[str, Any]]]:
    import joblib

    model = joblib.load(path)
    return lambda array: [("predict", model.predict(array))]


def _onnx(path: Path) -> Callable[[Any], list[tuple[str, Any]]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    names = [output.name for output in session.get_outputs()]
    return lambda array: list(zip(names, session.run(names, {given.name: array}), strict=True))


def main() -> None:
    """Run the server."""
    parser = argparse.ArgumentParser(parents=[model_server.parser])
    parser.add_argument("--path", type=Path, required=True)
    parser.add_argument("--silent", action="store_true")
    given = parser.parse_args()
    server = ModelServer(enable_latency_logging=not given.silent)
    for name in LOGGERS if given.silent else ():
        logging.getLogger(name).setLevel(logging.ERROR)
    server.start([Served(given.model_name, given.path)])


if __name__ == "__main__":
    main()
