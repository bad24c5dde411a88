"""Model formats of KServe, and model servers whose images have a format. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from clusters.base.redact import redact_url
from serving.engines.base.registry import ALLOW_NAMESPACE, FORMATS
from serving.importing.conversion import FieldPath, NotConverted

DETECTED: Final = ""
"""No `modelFormat`: a file in the model's folder describes it."""
FORMAT_OF: Final[Mapping[str, str]] = {
    "sklearn": "sklearn",
    "xgboost": "xgboost",
    "lightgbm": "lightgbm",
    "tensorflow": "tensorflow",
    "onnx": "onnx",
    "paddle": "paddle",
    "mlflow": "mlflow",
    "triton": DETECTED,
}
"""Our format for a name in KServe. That of scikit-learn depends on the file: see `sklearn_format`."""
UNSERVED: Final[Mapping[str, str]] = {
    "pytorch": "export the model to ONNX (torch.onnx.export) and deploy that file",
    "torchserve": "export the model to ONNX (torch.onnx.export) and deploy that file",
    "pmml": "export the pipeline to ONNX or save it with skops, and deploy that file",
    "huggingface": "deploy a classifier or embeddings with --format huggingface; keep others on KServe",
    "vllm": "keep it on KServe",
    "tensorrt": "deploy the ONNX file that the engine was made of",
    "openvino_ir": "deploy the ONNX file that the model was made of",
    "openvino": "deploy the ONNX file that the model was made of",
    "sparkml": "export the pipeline to ONNX and deploy that file",
    "catboost": "export the model to ONNX and deploy that file",
}
"""KServe's formats without an engine here, each with what to do."""
CODE_TO_DO: Final = (
    "format {name} runs code of the artifact, which the namespace must allow: {allow}; or save with skops"
)
_PICKLED: Final = {".joblib": "joblib", ".pkl": "pickle", ".pickle": "pickle", ".skops": "sklearn"}


class ServerImage(NamedTuple):
    """A known image of a model server: its format in KServe, and the arguments and variables with the model's URI."""

    name: str
    pattern: re.Pattern[str]
    format: str
    arguments: tuple[str, ...]
    variables: tuple[str, ...] = ()


def _image(pattern: str) -> re.Pattern[str]:
    """Return the pattern of an image's repository, in any registry, with any tag or digest."""
    return re.compile(rf"(?:[^/]+[.:][^/]*/|localhost/)?{pattern}(?::[\w.-]+)?(?:@sha256:[0-9a-f]+)?")


_URI: Final = ("STORAGE_URI",)
IMAGES: Final = (
    ServerImage("Knodel's model server", _image(r"(?:[^@]*/)?knodel"), "knodel", ("--storage-uri",)),
    ServerImage("KServe's scikit-learn server", _image("kserve/sklearnserver"), "sklearn", ("--model_dir",), _URI),
    ServerImage("KServe's XGBoost server", _image("kserve/xgbserver"), "xgboost", ("--model_dir",), _URI),
    ServerImage("KServe's LightGBM server", _image("kserve/lgbserver"), "lightgbm", ("--model_dir",), _URI),
    ServerImage("KServe's Paddle server", _image("kserve/paddleserver"), "paddle", ("--model_dir",), _URI),
    ServerImage(
        "TensorFlow Serving", _image("tensorflow/serving"), "tensorflow",
        ("--model_base_path",), ("MODEL_BASE_PATH", *_URI),
    ),
    ServerImage(
        "NVIDIA Triton", _image("nvidia/tritonserver"), "triton", ("--model-repository", "--model-store"), _URI
    ),
    ServerImage("ONNX Runtime Server", _image("onnxruntime/server"), "onnx", ("--model_path",), _URI),
)  # fmt: skip
"""Images of containers that are a model and no program of the user."""


def served_format(name: str, uri: str, path: FieldPath) -> str:
    """Return our `modelFormat` for a format of KServe and the URI of its files. Raises NotConverted."""
    if name in UNSERVED:
        raise NotConverted(f"no engine serves the format {name}", UNSERVED[name], path)
    if name == "sklearn":
        return sklearn_format(uri)
    if name in FORMAT_OF:
        return FORMAT_OF[name]
    raise NotConverted(f"the format {redact_url(name)[:40]!r} is unknown", f"use one of {', '.join(FORMATS)}", path)


def sklearn_format(uri: str) -> str:
    """Return the format of a scikit-learn model by its file.

    KServe's server loads `model.joblib`, `model.pkl` or `model.pickle` of a folder. Our format `joblib` reads each.
    """
    last = urlsplit(uri).path.rpartition("/")[2].lower()
    return next((made for suffix, made in _PICKLED.items() if last.endswith(suffix)), "joblib")


def code_to_do(made: str, namespace: str) -> Sequence[str]:
    """Return what must be done before a Model of a format that runs code can serve."""
    if made not in FORMATS or not FORMATS[made].runs_code:
        return ()
    allow = ALLOW_NAMESPACE.replace("NAME", namespace or "default")
    return (CODE_TO_DO.format(name=made, allow=allow),)


def normalized_uri(uri: str) -> str:
    """Return a storage URI of KServe as ours: both `oci+fetch` and `oci+native` are `oci`."""
    scheme, separator, rest = uri.partition("://")
    return f"oci://{rest}" if separator and scheme.lower() in ("oci+fetch", "oci+native") else uri
