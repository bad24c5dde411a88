"""Make the JSON Schemas of the messages of a model from its signature. Pure."""

from __future__ import annotations

import math
from typing import Any, Final, TypeAlias

import numpy as np

from serving.engines.base.datatypes import BYTES, DATATYPES
from serving.engines.base.engine import ANY, Signature, TensorSpec
from serving.modelserver.codec.protocol_invocations import FORMS, PARAMS
from serving.modelserver.codec.protocol_v1 import SIGNATURE
from serving.modelserver.codec.protocol_v2 import UNSUPPORTED_PARAMETERS
from serving.modelserver.codec.tensors import MAX_DIMENSIONS

Schema: TypeAlias = dict[str, Any]

ERROR: Final = "#/components/schemas/Error"
PARAMETERS: Final[Schema] = {
    "type": ["object", "null"],
    "additionalProperties": {"type": ["boolean", "number", "string"]},
    "propertyNames": {"not": {"enum": sorted(UNSUPPORTED_PARAMETERS)}},
}
_NULL: Final[Schema] = {"type": "null"}
_JSON_BITS: Final = 64  # bits of a JSON number in common decoders
_SIZE: Final[Schema] = {"type": "integer", "minimum": 0}


def infer_request(signature: Signature) -> Schema:
    """Return the schema of a v2 request, with inputs in the order of the model; the server accepts any order."""
    inputs = [_input(spec) for spec in signature.inputs]
    output = _object({"name": {"enum": [spec.name for spec in signature.outputs]}, "parameters": PARAMETERS}, "name")
    properties = {
        "id": {"type": ["string", "null"]},
        "inputs": {"type": "array", "prefixItems": inputs, "minItems": len(inputs), "maxItems": len(inputs)},
        "outputs": {
            "type": ["array", "null"],
            "items": output,
            "uniqueItems": True,
            "maxItems": len(signature.outputs),
        },
        "parameters": {**PARAMETERS, "properties": {"binary_data_output": {"const": False}}},
    }
    return _object(properties, "inputs")


def infer_response(name: str, revision: str, signature: Signature) -> Schema:
    """Return the schema of a v2 response."""
    output = {
        "name": {"enum": [spec.name for spec in signature.outputs]},
        "datatype": {"enum": sorted(DATATYPES)},
        "shape": {"type": "array", "items": _SIZE},
        "data": {"type": "array"},
        "parameters": {"type": "object"},
    }
    properties = {
        **_model_fields(name, revision),
        "id": {"type": "string"},
        "outputs": {"type": "array", "items": _object(output, "name", "datatype", "shape", "data")},
    }
    return _object(properties, *_model_fields(name, revision), "outputs")


def predict_request(signature: Signature) -> Schema:
    """Return the schema of a v1 request: rows as `instances` or `inputs`, or whole tensors by name."""
    specs = signature.inputs
    objects = {"type": "array", "items": _closed({spec.name: _nested(spec, 1) for spec in specs}), "minItems": 1}
    rows = objects if len(specs) > 1 else {"anyOf": [{**_nested(specs[0]), "type": "array"}, objects]}
    columns = _closed({spec.name: _nested(spec) for spec in specs})
    named = {"signature_name": {"enum": ["", SIGNATURE]}}
    return {
        "oneOf": [
            _object({"instances": rows, "inputs": _NULL, **named}, "instances"),
            _object({"inputs": rows, "instances": _NULL, **named}, "inputs"),
            _object({"inputs": columns, "instances": _NULL, **named}, "inputs"),
        ]
    }


def predict_response() -> Schema:
    """Return the schema of a v1 response: `predictions` for rows, `outputs` for whole tensors."""
    return {"oneOf": [_object({"predictions": {}}, "predictions"), _object({"outputs": {}}, "outputs")]}


def invocations_request() -> Schema:
    """Return the schema of a request to `/invocations`: one form of data, and parameters."""
    params = {PARAMS: {"type": ["object", "null"]}}
    return {"oneOf": [{**_object({form: {}, **params}, form), "additionalProperties": False} for form in FORMS]}


def generate_request(signature: Signature) -> Schema:
    """Return the schema of a generate request: the inputs by name, and parameters."""
    values = {}
    for spec in signature.inputs:
        nested = _nested(spec)
        has_one_element = spec.shape is None or {1, ANY} >= set(spec.shape)
        values[spec.name] = {"anyOf": [_element(spec.datatype), nested]} if has_one_element else nested
    names = {"not": {"enum": [*values, *sorted(UNSUPPORTED_PARAMETERS)]}}
    others = {"type": ["object", "null"], "propertyNames": names}
    return {
        **_object({"parameters": others, **values}, *values),
        "propertyNames": {"not": {"enum": sorted(UNSUPPORTED_PARAMETERS)}},
        "additionalProperties": {"type": ["boolean", "number", "string", "null"]},
    }


def generate_response(name: str, revision: str, signature: Signature) -> Schema:
    """Return the schema of a generate response: the outputs by name."""
    fields = _model_fields(name, revision)
    return _object({**fields, **{output: {} for output in signature.default_outputs}}, *fields)


def metadata(name: str, revision: str) -> Schema:
    """Return the schema of the metadata of a model."""
    tensor = {
        "name": {"type": "string"},
        "datatype": {"enum": sorted(DATATYPES)},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": ANY}},
    }
    columns = _object({"columns": {"type": "array", "items": {"type": "string"}}}, "columns")
    tensors = {"type": "array", "items": _object({**tensor, "parameters": columns}, *tensor)}
    properties = {
        "name": {"const": name},
        "versions": {"const": [revision]},
        "platform": {"type": "string"},
        "inputs": tensors,
        "outputs": tensors,
    }
    return _object(properties, *properties)


def _input(spec: TensorSpec) -> Schema:
    datatypes = ["FP32", "FP64"] if DATATYPES[spec.datatype].is_float else [spec.datatype]
    shape: Schema = {"type": "array", "items": _SIZE, "maxItems": MAX_DIMENSIONS}
    length = {}
    if spec.shape is not None:
        sizes = [_SIZE if size == ANY else {"const": size} for size in spec.shape]
        shape = {"type": "array", "minItems": len(sizes), "maxItems": len(sizes)}
        shape |= {"prefixItems": sizes} if sizes else {}
        if ANY not in spec.shape:
            length = {"minItems": math.prod(spec.shape), "maxItems": math.prod(spec.shape)}
    properties = {
        "name": {"const": spec.name},
        "datatype": {"enum": datatypes},
        "shape": shape,
        "data": {"type": "array", "items": _element(spec.datatype), **length},
        "parameters": {**PARAMETERS, "properties": {"binary_data_size": False}},
    }
    return _object(properties, "name", "datatype", "shape", "data")


def _nested(spec: TensorSpec, outer: int = 0) -> Schema:
    """Return the schema of a value nested by the shape without its `outer` dimensions; {} for an unknown rank."""
    if spec.shape is None:
        return {}
    nested, least = _element(spec.datatype), 0
    for size in reversed(spec.shape[outer:]):
        bounds = {"minItems": least} if size == ANY else {"minItems": size, "maxItems": size}
        # only the innermost list may be empty: an empty outer one would hide the number of levels below it
        nested, least = {"type": "array", "items": nested, **bounds}, 1
    return nested


def _element(datatype: str) -> Schema:
    kind = DATATYPES[datatype].dtype.kind
    if datatype == BYTES:
        return {"type": "string"}
    if kind == "b":
        return {"type": "boolean"}
    if kind == "f":
        info = np.finfo(DATATYPES[datatype].dtype)
        if info.bits == _JSON_BITS:
            return {"type": "number"}
        beyond = float(info.max) + 2.0 ** (info.maxexp - info.nmant - 2)  # half a step above: rounds to infinity
        return {"type": "number", "exclusiveMinimum": -beyond, "exclusiveMaximum": beyond}
    bounds = np.iinfo(DATATYPES[datatype].dtype)
    return {"type": "integer", "minimum": int(bounds.min), "maximum": int(bounds.max)}


def _model_fields(name: str, revision: str) -> Schema:
    return {"model_name": {"const": name}, "model_version": {"const": revision}}


def _closed(properties: Schema) -> Schema:
    """Return the schema of an object with exactly these properties."""
    return {**_object(properties, *properties), "additionalProperties": False}


def _object(properties: Schema, *required: str) -> Schema:
    """Return the schema of an object with these properties; others are allowed, as in the protocols."""
    return {"type": "object", "required": list(required), "properties": properties}
