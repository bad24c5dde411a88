"""Types and decoders of the JSON messages of the inference protocol.

The `datatype` of an input is the tag of a union. So `data` is decoded directly into a list of the right type, in one
pass and without conversion: 1.5 is not an INT32, "yes" and 1 are not a BOOL. For FP32 and FP64, integers are decoded as
floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any, Final

import msgspec

from serving.engines.base.datatypes import BYTES, DATATYPES
from serving.engines.base.engine import ANY, TensorSpec
from serving.modelserver.base.errors import ContentTooLarge

Parameters = dict[str, bool | int | float | str]


class InputTensor(msgspec.Struct):
    """One input; subclasses define the element type of `data`."""

    name: str
    shape: list[int]
    data: list[Any] | None = None
    parameters: Parameters | None = None

    @property
    def datatype(self) -> str:
        """Return the protocol's name of the datatype."""
        return str(self.__struct_config__.tag)


class NestedInput(msgspec.Struct):
    """One input whose data may be nested; the elements are checked later."""

    name: str
    shape: list[int]
    datatype: str
    data: list[Any] | None = None
    parameters: Parameters | None = None


class RequestedOutput(msgspec.Struct):
    """One output that the caller requests."""

    name: str
    parameters: Parameters | None = None


class OutputTensor(msgspec.Struct, omit_defaults=True):
    """One output of a response."""

    name: str
    datatype: str
    shape: Sequence[int]
    data: list[Any] | None = None
    parameters: dict[str, int] | None = None


class InferResponse(msgspec.Struct, omit_defaults=True):
    """The response to an inference request."""

    model_name: str
    model_version: str
    outputs: list[OutputTensor]
    id: str = ""


def element_type(datatype: str) -> Any:
    """Return the type of a list of elements of the datatype, for decoders."""
    if datatype == BYTES:
        return list[str]
    return {"b": list[bool], "f": list[float]}.get(DATATYPES[datatype].dtype.kind, list[int])


def _input_of(datatype: str) -> Any:
    return msgspec.defstruct(
        f"{datatype}Input",
        [("data", element_type(datatype) | None, None)],
        bases=(InputTensor,),
        tag_field="datatype",
        tag=datatype,
    )


class InferRequest(msgspec.Struct):
    """An inference request."""

    inputs: list[Any]
    outputs: list[RequestedOutput] | None = None
    id: str | None = None
    parameters: Parameters | None = None

    @property
    def members(self) -> int:
        """Return the total number of members of all JSON objects that the decoder recognised."""
        count = 1 + (self.id is not None)
        for one in self.inputs:
            count += 3 + (one.data is not None)
            if one.parameters is not None:
                count += 1 + len(one.parameters)
        if self.parameters is not None:
            count += 1 + len(self.parameters)
        if self.outputs is not None:
            count += 1 + sum(1 if one.parameters is None else 2 + len(one.parameters) for one in self.outputs)
        return count


def _request_of(inputs: Any) -> Any:
    return msgspec.defstruct("InferRequest", [("inputs", list[inputs])], bases=(InferRequest,))


REQUEST: Final[msgspec.json.Decoder[InferRequest]] = msgspec.json.Decoder(
    _request_of(reduce(or_, map(_input_of, DATATYPES)))
)
"""Decoder for flat data, which most clients send."""

NESTED: Final[msgspec.json.Decoder[InferRequest]] = msgspec.json.Decoder(_request_of(NestedInput))
"""Decoder for nested data."""


def metadata_shape(spec: TensorSpec) -> Sequence[int]:
    """Return the shape for the metadata of a model: the protocol cannot express an unknown rank, which becomes [-1]."""
    return (ANY,) if spec.shape is None else spec.shape


def check_elements(message: bytes, most: int) -> None:
    """Raise ContentTooLarge if a JSON message may have more than `most` elements.

    Call this before decoding: a decoded element takes many times the memory of its text. Brackets are counted as well
    as commas, because nested lists of one element contain no comma.
    """
    if len(message) > most and sum(map(message.count, (b",", b"[", b"{"))) > most:
        raise ContentTooLarge(f"the JSON has more than {most} elements: send them as binary data")


def explain_decode_error(error: Exception) -> str:
    """Return the place and reason of a decoding error, such as "inputs[0].data[2]: Expected `int`, got `float`"."""
    if isinstance(error, RecursionError):
        return "too many levels of nesting"
    if isinstance(error, UnicodeDecodeError):
        return "not valid UTF-8"
    words, _, place = str(error).partition(" - at `$")
    return f"{place.strip('`').lstrip('.')}: {words}" if place else words
