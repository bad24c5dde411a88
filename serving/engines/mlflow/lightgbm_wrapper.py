"""Read the booster and the labels of a LightGBM wrapper that skops has saved, without creating its objects.

A skops file is a zip archive with a description of the object, `schema.json`, and arrays. The description has the
booster as LightGBM's own text. So the model is loaded from that text, which is vetted, and no type of the file is used.

Sources: skops `io/_general.py` and `io/_numpy.py` (0.16), lightgbm `sklearn.py` and `basic.py` (4.7).
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any, Final

import msgspec
import numpy as np

from serving.engines.base.errors import LoadFailed

MODULE: Final = "lightgbm.sklearn"
CLASSIFIER: Final = "LGBMClassifier"
CLASSES: Final = (CLASSIFIER, "LGBMRegressor", "LGBMRanker")
SCHEMA: Final = "schema.json"
LARGEST: Final = 1 << 30  # bytes of the description, with the trees
LARGEST_LABELS: Final = 1 << 20  # bytes


def booster_text(content: bytes, name: str) -> bytes:
    """Return the booster in LightGBM's text format, with the labels of a classifier in the form of `knodel.saving`.

    Raises LoadFailed for a file that is no wrapper, or one that predicts in another way than its booster.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            root = msgspec.json.decode(_read(archive, SCHEMA, LARGEST))
            fields = _fields(root, MODULE, CLASSES)
            booster = _fields(fields["_Booster"], "lightgbm.basic", ("Booster",))
            text = _value(booster.get("_handle") or booster["handle"])
            if not isinstance(text, str):
                raise TypeError
            differs = _value(booster["best_iteration"]) > 0
            differs = differs or booster["pandas_categorical"]["content"] not in ([], "null")
            labels = None
            if root["__class__"] == CLASSIFIER:
                file = fields["_classes"]["file"]
                found = np.load(io.BytesIO(_read(archive, file, LARGEST_LABELS)), allow_pickle=False)
                labels = json.dumps({"classes": found.tolist()})
    except Exception as error:  # a damaged file causes errors of many types
        raise LoadFailed(f"{name} is not a wrapper of LightGBM that can be read without its code") from error
    if differs:
        raise LoadFailed(f"{name} stopped early, or has pandas' categories, which only its wrapper applies")
    if labels is not None:
        text = text.replace("\nend of parameters\n", f"\nend of parameters\nscikit_learn:{labels}\n")
    return text.encode()


def _read(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """Return a file of the archive. Raises ValueError for one of more than `most` bytes."""
    with archive.open(name) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError("too large")
    return content


def _fields(node: Any, module: str, classes: tuple[str, ...]) -> Any:
    """Return the attributes of an object of one of these classes. Raises ValueError, LookupError, TypeError."""
    if node["__module__"] != module or node["__class__"] not in classes or node["__loader__"] != "ObjectNode":
        raise ValueError("another class")
    return node["content"]["content"]


def _value(node: Any) -> Any:
    """Return a plain value. Raises ValueError, LookupError, TypeError."""
    if node["__loader__"] != "JsonNode":
        raise ValueError("no plain value")
    return msgspec.json.decode(node["content"])
