"""The floor of a start: Starlette and ONNX Runtime with minimal code.

python -m loadtests.bench.servers.apps.bare PORT MODEL
"""

from __future__ import annotations

import sys

import numpy as np
import onnxruntime
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from loadtests.bench.servers.load import PATH


def application(path: str) -> Starlette:
    """Return an application with the ONNX file `path`. It does not check requests."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    async def infer(request: Request) -> Response:
        given = (await request.json())["inputs"][0]
        array = np.array(given["data"], np.float32).reshape(given["shape"])
        answers = session.run(None, {given["name"]: array})
        outputs = [
            {"name": name, "datatype": "FP32", "shape": answer.shape, "data": answer.ravel().tolist()}
            for name, answer in zip(names, answers, strict=True)
        ]
        return JSONResponse({"outputs": outputs})

    return Starlette(routes=[Route(PATH, infer, methods=["POST"])])


if __name__ == "__main__":
    uvicorn.run(
        application(sys.argv[2]), port=int(sys.argv[1]), loop="uvloop", http="httptools", lifespan="off",
        access_log=False, log_level="warning",
    )  # fmt: skip
