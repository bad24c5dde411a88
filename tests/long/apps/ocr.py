"""Read an image by RapidOCR's pipeline, once with its models inside and once with models that are served.

    python ocr.py URL DETECTOR CLASSIFIER RECOGNIZER        names of the models at URL

Prints {"local": [[text, score], …], "served": …, "asked": {model: how often}}.
"""

from __future__ import annotations

import http.client
import json
import sys
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from rapidocr_onnxruntime import RapidOCR  # type: ignore[import-untyped]

SIZE = (900, 420)
LINES = ("Knodel serves models", "Page 7 of 42", "upside down")
HEIGHT = 48  # pixels of a letter
STEP = 130  # pixels from line to line
LENGTH_HEADER = "Inference-Header-Content-Length"
PATIENCE = 60.0  # s
TYPES: dict[str, np.dtype[Any]] = {"FP32": np.dtype("<f4"), "INT64": np.dtype("<i8")}


def page() -> Any:
    """An image of some lines of text, the last one turned by 180 degrees, so that the classifier is needed."""
    font = ImageFont.load_default(HEIGHT)
    made = Image.new("RGB", SIZE, "white")
    for number, text in enumerate(LINES):
        line = Image.new("RGB", (SIZE[0] - 80, STEP - 30), "white")
        ImageDraw.Draw(line).text((20, 20), text, "black", font)
        last = number == len(LINES) - 1
        made.paste(line.rotate(180) if last else line, (40, 20 + number * STEP))
    return np.asarray(made)


class Served:
    """Stands for an inference session: its model is asked by the Open Inference Protocol, tensors as bytes."""

    def __init__(self, url: str, model: str) -> None:
        self.calls = 0
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE)
        self._path = f"/v2/models/{model}"
        self._connection.request("GET", self._path)
        (described,) = json.loads(self._connection.getresponse().read())["inputs"]
        self._input = described["name"]

    def __call__(self, array: Any) -> list[Any]:
        self.calls += 1
        content = np.ascontiguousarray(array, TYPES["FP32"]).tobytes()
        given = {"name": self._input, "datatype": "FP32", "shape": array.shape,
                 "parameters": {"binary_data_size": len(content)}}  # fmt: skip
        head = json.dumps({"inputs": [given], "parameters": {"binary_data_output": True}}).encode()
        headers = {LENGTH_HEADER: str(len(head)), "Content-Type": "application/octet-stream"}
        self._connection.request("POST", f"{self._path}/infer", head + content, headers)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != http.client.OK:
            raise SystemExit(f"{self._path}: {answer.status} {body[:500]!r}")
        return self._tensors(body, int(answer.headers[LENGTH_HEADER]))

    def _tensors(self, body: bytes, at: int) -> list[Any]:
        tensors = []
        for output in json.loads(body[:at])["outputs"]:
            size = output["parameters"]["binary_data_size"]
            tensors.append(np.frombuffer(body[at : at + size], TYPES[output["datatype"]]).reshape(output["shape"]))
            at += size
        return tensors


def replace_session(stage: Any, served: Served) -> None:
    """Let a stage of the pipeline ask `served`."""
    (name,) = [name for name, value in vars(stage).items() if type(value).__name__ == "OrtInferSession"]
    setattr(stage, name, served)


def read(pipeline: Any, image: Any) -> list[tuple[str, float]]:
    """The texts, each with how sure the pipeline is."""
    found, _ = pipeline(image)
    return [(text, float(score)) for _, text, score in found or ()]


def main(url: str, *names: str) -> None:
    """Read the page twice."""
    image, pipeline = page(), RapidOCR()
    local = read(pipeline, image)
    stages = dict(zip(names, (pipeline.text_det, pipeline.text_cls, pipeline.text_rec), strict=True))
    sessions = {name: Served(url, name) for name in stages}
    for name, stage in stages.items():
        replace_session(stage, sessions[name])
    served = read(pipeline, image)
    asked = {name: session.calls for name, session in sessions.items()}
    print(json.dumps({"local": local, "served": served, "asked": asked}))


if __name__ == "__main__":
    main(*sys.argv[1:])
