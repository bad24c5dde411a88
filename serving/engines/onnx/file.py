"""What must be known of an ONNX file before ONNX Runtime sees it: which data it keeps in other files. Pure.

A reader of just the protobuf wire format and of the few fields of `onnx.proto` that hold tensors; the `onnx` package is
not needed to serve models.
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
_LONGEST_VARINT = 10  # bytes
_LARGEST_KEY: Final = (1 << 32) - 1  # protobuf's reader drops what is above, and then sees another field than we do
_DEEPEST: Final = 32  # graphs within graphs; real models have two or three

_LOCATION: Final = b"location"
_CONTROL_FLOW: Final = tuple(b"\x22" + bytes([len(name)]) + name for name in (b"Loop", b"Scan", b"If"))
"""NodeProto.op_type (field 4) of the operators that run graphs of their own, as bytes of the file."""


class ExternalData(msgspec.Struct, frozen=True):
    """A tensor whose values are in the file `location`, from `offset`, `length` bytes (None: to its end)."""

    tensor: str
    location: str
    offset: int
    length: int | None


def has_control_flow(model: bytes) -> bool:
    """Whether the model may loop; true also for a model that only contains such bytes."""
    return any(mark in model for mark in _CONTROL_FLOW)


def external_data(model: bytes) -> tuple[ExternalData, ...]:
    """The initializers of the model's graph that are kept in other files.

    Raises LoadFailed for a broken file, and for other files in places where no exporter puts them (attributes,
    functions, graphs within the graph).
    """
    if _LOCATION not in model:  # the key that such a tensor must have; saves walking through most models
        return ()
    try:
        return tuple(_in_model(memoryview(model)))
    except (IndexError, ValueError) as error:
        raise LoadFailed("the file is no ONNX model: it is damaged or cut off") from error


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
    if depth > _DEEPEST:
        raise LoadFailed(f"the model nests graphs more than {_DEEPEST} deep")
    for field, content in _fields(graph):
        if field == _GRAPH_INITIALIZERS:
            _refuse(content)
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
            _refuse(content)
        elif part in _ATTRIBUTE_GRAPHS:
            _refuse_in_graph(content, depth + 1)
        elif part in _ATTRIBUTE_SPARSE:
            _refuse_in_sparse(content)


def _refuse_in_sparse(sparse: memoryview) -> None:
    for field, content in _fields(sparse):
        if field in _SPARSE_TENSORS:
            _refuse(content)


def _refuse(tensor: memoryview) -> None:
    found = _external(tensor)
    if found is not None:
        raise LoadFailed(
            f"tensor {found.tensor!r} keeps its data in another file but is no initializer: save it inside"
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
    """Number and content of the length-delimited fields; others are passed over. Raises ValueError, IndexError."""
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        if key > _LARGEST_KEY:
            raise ValueError(f"field {key >> 3}")
        wire = key & 7
        if wire == _BYTES:
            length, at = _varint(message, at)
            if at + length > end:
                raise ValueError("a field ends behind its message")
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
    for index in range(_LONGEST_VARINT):
        byte = message[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise ValueError("a number is too long")
