"""Find the external data of an ONNX file before ONNX Runtime loads it. Pure.

This reads only the protobuf wire format and the few fields of `onnx.proto` that hold tensors, so that serving does not
need the `onnx` package.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from serving.engines.base.errors import LoadFailed

# Field numbers of onnx.proto
_MODEL_GRAPH, _MODEL_FUNCTIONS = 7, 25
_GRAPH_NODES, _GRAPH_INITIALIZERS, _GRAPH_SPARSE = 1, 5, 15
_FUNCTION_NODES, _FUNCTION_DEFAULTS = 7, 11
_NODE_ATTRIBUTES = 5
_ATTRIBUTE_TENSORS = frozenset({5, 10})
_ATTRIBUTE_GRAPHS = frozenset({6, 11})
_ATTRIBUTE_SPARSE = frozenset({22, 23})
_SPARSE_TENSORS = frozenset({1, 2})
_TENSOR_NAME, _TENSOR_EXTERNAL = 8, 13
_ENTRY_KEY, _ENTRY_VALUE = 1, 2

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_MAX_VARINT = 10  # bytes
_MAX_KEY: Final = (1 << 32) - 1  # protobuf drops higher bits, and would then read another field than this module
_MAX_DEPTH: Final = 32  # nested graphs; real models have two or three

_LOCATION: Final = b"location"
_CONTROL_FLOW: Final = tuple(b"\x22" + bytes([len(name)]) + name for name in (b"Loop", b"Scan", b"If"))
"""NodeProto.op_type (field 4) of the operators with subgraphs, as bytes in the file."""


class ExternalData(msgspec.Struct, frozen=True):
    """A tensor with its values in the file `location`: `length` bytes from `offset`, None to the end of the file."""

    tensor: str
    location: str
    offset: int
    length: int | None


def has_control_flow(model: bytes) -> bool:
    """Return whether the model may have loops; also true for a model that contains these bytes as data."""
    return any(mark in model for mark in _CONTROL_FLOW)


def external_data(model: bytes) -> tuple[ExternalData, ...]:
    """Return the initializers of the model's graph with external data.

    Raises LoadFailed for a damaged file, and for external data where no exporter puts it: in attributes, functions and
    nested graphs.
    """
    if _LOCATION not in model:  # every such tensor has this key; most models need no parsing then
        return ()
    try:
        return tuple(_in_model(memoryview(model)))
    except (IndexError, ValueError) as error:
        raise LoadFailed("the file is not an ONNX model, or it is damaged") from error


def _in_model(model: memoryview) -> Iterator[ExternalData]:
    for field, content in _fields(model):
        if field == _MODEL_GRAPH:
            yield from _in_graph(content)
        elif field == _MODEL_FUNCTIONS:
            for part, node in _fields(content):
                if part == _FUNCTION_NODES:
                    _refuse_in_node(node, 0)
                elif part == _FUNCTION_DEFAULTS:
                    _refuse_in_attribute(node, 0)


def _in_graph(graph: memoryview) -> Iterator[ExternalData]:
    for field, content in _fields(graph):
        if field == _GRAPH_INITIALIZERS:
            found = _external(content)
            if found is not None:
                yield found
        elif field == _GRAPH_NODES:
            _refuse_in_node(content, 0)
        elif field == _GRAPH_SPARSE:
            _refuse_in_sparse(content)


def _refuse_in_graph(graph: memoryview, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise LoadFailed(f"the model nests graphs more than {_MAX_DEPTH} deep")
    for field, content in _fields(graph):
        if field == _GRAPH_INITIALIZERS:
            _refuse_external(content)
        elif field == _GRAPH_NODES:
            _refuse_in_node(content, depth)
        elif field == _GRAPH_SPARSE:
            _refuse_in_sparse(content)


def _refuse_in_node(node: memoryview, depth: int) -> None:
    for field, attribute in _fields(node):
        if field == _NODE_ATTRIBUTES:
            _refuse_in_attribute(attribute, depth)


def _refuse_in_attribute(attribute: memoryview, depth: int) -> None:
    for part, content in _fields(attribute):
        if part in _ATTRIBUTE_TENSORS:
            _refuse_external(content)
        elif part in _ATTRIBUTE_GRAPHS:
            _refuse_in_graph(content, depth + 1)
        elif part in _ATTRIBUTE_SPARSE:
            _refuse_in_sparse(content)


def _refuse_in_sparse(sparse: memoryview) -> None:
    for field, content in _fields(sparse):
        if field in _SPARSE_TENSORS:
            _refuse_external(content)


def _refuse_external(tensor: memoryview) -> None:
    found = _external(tensor)
    if found is not None:
        raise LoadFailed(
            f"tensor {found.tensor!r} has external data but is not an initializer: save it in the model file"
        )


def _external(tensor: memoryview) -> ExternalData | None:
    name, entries = "", {}
    for field, content in _fields(tensor):
        if field == _TENSOR_NAME:
            name = str(content, "utf-8")
        elif field == _TENSOR_EXTERNAL:
            entry = {part: str(value, "utf-8") for part, value in _fields(content)}
            entries[entry.get(_ENTRY_KEY, "")] = entry.get(_ENTRY_VALUE, "")
    if not entries:
        return None
    length = entries.get("length")
    return ExternalData(
        name, entries.get("location", ""), int(entries.get("offset") or 0), int(length) if length else None
    )


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield number and content of the length-delimited fields and skip others. Raises ValueError, IndexError."""
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        if key > _MAX_KEY:
            raise ValueError(f"field {key >> 3}")
        wire = key & 7
        if wire == _BYTES:
            length, at = _varint(message, at)
            if at + length > end:
                raise ValueError("a field ends after its message")
            yield key >> 3, message[at : at + length]
            at += length
        elif wire == _VARINT:
            _, at = _varint(message, at)
        elif wire in (_FIXED64, _FIXED32):
            at += 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire}")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for index in range(_MAX_VARINT):
        byte = message[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise ValueError("a varint is too long")
