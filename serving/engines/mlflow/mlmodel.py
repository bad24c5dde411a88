"""Read the file `MLmodel` of an MLflow model folder: its flavors and its signature. Pure.

Sources: mlflow `models/model.py`, `models/signature.py` and `types/schema.py` (1.27 to 3.17). The file is untrusted:
its size is bounded, YAML has no tags and few aliases, and each path must be one of the folder's files.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from clusters.net.strict_yaml import LoadError, load_documents
from serving.engines.base.datatypes import BYTES
from serving.engines.base.errors import LoadFailed

FILE: Final = "MLmodel"
LARGEST: Final = 1 << 20  # bytes; the largest signatures have some thousand columns
TENSOR: Final = "tensor"
_COLUMN_TYPES: Final = {
    "boolean": "BOOL", "integer": "INT32", "long": "INT64", "float": "FP32", "double": "FP64",
    "string": BYTES, "binary": BYTES, "datetime": BYTES,
}  # fmt: skip
_TENSOR_TYPES: Final = {
    "bool": "BOOL", "float16": "FP16", "float32": "FP32", "float64": "FP64", "object": BYTES, "str": BYTES,
    **{f"int{size}": f"INT{size}" for size in (8, 16, 32, 64)},
    **{f"uint{size}": f"UINT{size}" for size in (8, 16, 32, 64)},
}  # fmt: skip


class Field(msgspec.Struct, frozen=True):
    """A column, tensor or parameter of a signature.

    name        "" without a name
    type        MLflow's type: `double`, `datetime`, `array`, or NumPy's name of a tensor's type
    datatype    the protocol's datatype; "" if it has none, as for arrays and objects in columns
    shape       of a tensor, or of a parameter that is a list; None for a column or a single value
    default     of a parameter
    """

    name: str
    type: str
    datatype: str
    required: bool = True
    shape: tuple[int, ...] | None = None
    default: Any = None


class MLmodel(msgspec.Struct, frozen=True):
    """The content of the file: the settings of each flavor, and the parts of the signature, which may be absent."""

    flavors: Mapping[str, Mapping[str, Any]]
    inputs: tuple[Field, ...] | None = None
    outputs: tuple[Field, ...] | None = None
    params: tuple[Field, ...] | None = None

    @property
    def has_tensors(self) -> bool:
        """Whether the inputs of the signature are tensors, not columns."""
        return self.inputs is not None and any(field.shape is not None for field in self.inputs)


class _TensorSpec(msgspec.Struct):
    dtype: str
    shape: list[int]


class _Field(msgspec.Struct):
    type: str
    name: str | int | None = None
    required: bool = True
    optional: bool = False  # of MLflow before 2.6
    tensor_spec: _TensorSpec | None = msgspec.field(name="tensor-spec", default=None)
    shape: list[int] | None = None  # of a parameter
    default: Any = None


_FIELDS: Final = msgspec.json.Decoder(list[_Field])


def read_mlmodel(content: bytes, uri: str) -> MLmodel:
    """Return the content of an `MLmodel` file. Raises LoadFailed.

    Example:
        read_mlmodel(b"flavors: {onnx: {data: model.onnx}}", "file:///m").flavors["onnx"]["data"]  # "model.onnx"
    """
    if len(content) > LARGEST:
        raise LoadFailed(f"{uri}: {FILE} has {len(content)} bytes, more than {LARGEST}: log the model again")
    try:
        documents = load_documents(content.decode(), FILE)
    except UnicodeDecodeError as error:
        raise LoadFailed(f"{uri}: {FILE} is not UTF-8: log the model again") from error
    except LoadError as error:
        raise LoadFailed(f"{uri}: {error}") from error
    document = documents[0] if len(documents) == 1 else None
    flavors = document.get("flavors") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(flavors, dict) or not flavors:
        raise LoadFailed(f"{uri}: {FILE} has no flavors: log the model with a flavor, such as mlflow.sklearn")
    if not all(isinstance(settings, dict) for settings in flavors.values()):
        raise LoadFailed(f"{uri}: {FILE} has a flavor without settings: log the model again")
    signature = document.get("signature") or {}
    if not isinstance(signature, dict):
        raise LoadFailed(f"{uri}: signature of {FILE} is not a mapping: log the model again")
    parts = {part: _fields(signature.get(part), f"{uri}: signature.{part} of {FILE}") for part in _PARTS}
    return MLmodel({str(name): settings for name, settings in flavors.items()}, **parts)


_PARTS: Final = ("inputs", "outputs", "params")


def artifact_file(settings: Mapping[str, Any], key: str, names: Sequence[str], flavor: str, uri: str) -> str:
    """Return the file that the setting `key` of a flavor names. Raises LoadFailed unless it is one of `names`."""
    path = settings.get(key)
    if not isinstance(path, str) or not path:
        raise LoadFailed(f"{uri}: flavor {flavor} of {FILE} has no {key}: log the model again")
    name = posixpath.normpath(path)
    if path.startswith("/") or "\\" in path or name not in names:
        raise LoadFailed(
            f"{uri}: {key} of flavor {flavor} is {path[:100]!r}, which is not a file of the model's folder"
        )
    return name


def _fields(text: object, where: str) -> tuple[Field, ...] | None:
    """Return the fields in the JSON of a part of the signature. Raises LoadFailed."""
    if text is None:
        return None
    try:
        given = _FIELDS.decode(text) if isinstance(text, str) else None
    except (msgspec.DecodeError, RecursionError) as error:
        raise LoadFailed(f"{where} cannot be read: {error}") from error
    if given is None:
        raise LoadFailed(f"{where} is not JSON in a string: log the model again")
    fields = tuple(_field(one) for one in given)
    names = [field.name for field in fields if field.name]
    if len(set(names)) < len(names) or (len(fields) > 1 and names and len(names) < len(fields)):
        raise LoadFailed(f"{where} has names that are repeated or missing: log the model again")
    return fields or None


def _field(given: _Field) -> Field:
    name = "" if given.name is None else str(given.name)
    required = given.required and not given.optional
    spec = given.tensor_spec
    if given.type == TENSOR and spec is not None:
        kind = "str" if spec.dtype.lstrip("<>|=")[:1] in ("U", "S") else spec.dtype
        return Field(name, kind, _TENSOR_TYPES.get(kind, ""), required, tuple(spec.shape), given.default)
    shape = None if given.shape is None else tuple(given.shape)
    return Field(name, given.type, _COLUMN_TYPES.get(given.type, ""), required, shape, given.default)
