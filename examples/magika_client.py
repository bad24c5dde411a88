"""Client of the magika model (https://github.com/google/magika), which detects the content type of a file.

The client extracts the first and the last bytes of the file for the request; the model runs on the server. The
quickstart, the tests and the benchmarks use it.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

MODEL = "standard_v3_3"


def model_folder() -> Path:
    """Return the folder of the model in the wheel `magika`. Raises SystemExit if the wheel is not installed."""
    found = importlib.util.find_spec("magika")
    if found is None or found.origin is None:
        raise SystemExit("the package magika is not installed: pip install magika")
    return Path(found.origin).parent / "models" / MODEL


def model_file() -> Path:
    """Return the path of the ONNX file."""
    return model_folder() / "model.onnx"


def infer_request(content: bytes) -> dict[str, Any]:
    """Return the Open Inference Protocol request for a file: one INT32 tensor `bytes` of shape [1, 2048]."""
    config = _config()
    block, padding = config["block_size"], config["padding_token"]
    begin = list(content[:block].lstrip()[: config["beg_size"]])
    end = list(content[-block:].rstrip()[-config["end_size"] :])
    begin += [padding] * (config["beg_size"] - len(begin))
    end = [padding] * (config["end_size"] - len(end)) + end
    data = begin + end
    return {"inputs": [{"name": "bytes", "datatype": "INT32", "shape": [1, len(data)], "data": data}]}


def best_label(response: dict[str, Any]) -> tuple[str, float]:
    """Return (content type, score between 0 and 1) from the response to `infer_request`."""
    scores = response["outputs"][0]["data"]
    best = max(range(len(scores)), key=scores.__getitem__)
    return str(_config()["target_labels_space"][best]), float(scores[best])


def _config() -> dict[str, Any]:
    config: dict[str, Any] = json.loads((model_folder() / "config.min.json").read_text())
    return config
