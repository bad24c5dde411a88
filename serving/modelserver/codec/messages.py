"""The JSON messages of the inference protocol as types, and their decoders.

An input's `datatype` is the tag of a union, so that `data` is read straight into a list of the right type: one pass, no
conversion (1.5 is no INT32, "yes" no BOOL, 1 no BOOL; integers are read as floats where the type is FP32 or FP64).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any, Final

import msgspec

from serving.engines.base.datatypes import BYTES, DATATYPES
from serving.engines.base.engine import ANY, TensorSpec
from serving.modelserver.base.errors import TooLarge

Parameters = dict[str, bool | int | float | str]


class InputTensor(msgspec.Struct):
    """One input; subclasses say what `data` holds."""

    name: str
    shape: list[int]
    data: list[Any] | None = None
    parameters: Parameters | None = None

    @property
    def datatype(self) -> str:
        """The protocol's name of the type."""
        return str(self.__struct_config__.tag)


class NestedInput(msgspec.Struct):
    """One input whose data may be nested and is checked later."""

    name: str
    shape: list[int]
    datatype: str
    data: list[Any] | None = None
    parameters: Parameters | None = None


class RequestedOutput(msgspec.Struct):
    """One output that the caller wants."""

    name: str
    parameters: Parameters | None = None


class OutputTensor(msgspec.Struct, omit_defaults=True):
    """One output of an answer."""

    name: str
    datatype: str
    shape: Sequence[int]
    data: list[Any] | None = None
    parameters: dict[str, int] | None = None


class InferResponse(msgspec.Struct, omit_defaults=True):
    """An answer."""

    model_name: str
    model_version: str
    outputs: list[OutputTensor]
    id: str = ""


def element_type(datatype: str) -> Any:
    """The type of a list of such elements, as decoders know it."""
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
    """A request."""

    inputs: list[Any]
    outputs: list[RequestedOutput] | None = None
    id: str | None = None
    parameters: Parameters | None = None

    @property
    def members(self) -> int:
        """How many members all of its objects have, as far as they are known."""
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
"""For data that is flat, as most clients send it."""

NESTED: Final[msgspec.json.Decoder[InferRequest]] = msgspec.json.Decoder(_request_of(NestedInput))


def metadata_shape(spec: TensorSpec) -> Sequence[int]:
    """As metadata tells it: the protocol has no word for an unknown rank."""
    return (ANY,) if spec.shape is None else spec.shape


def check_elements(message: bytes, most: int) -> None:
    """Before anything of JSON is decoded: each element takes many times its bytes. Raises TooLarge.

    Brackets count, too: lists within lists need no comma.
    """
    if len(message) > most and sum(map(message.count, (b",", b"[", b"{"))) > most:
        raise TooLarge(f"JSON has more than {most} elements: send them as binary data")


def explain_decode_error(error: Exception) -> str:
    """What was wrong and where (`inputs[0].data[2]: Expected `int`, got `float``), in words for the caller."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "it is no UTF-8"
    words, _, place = str(error).partition(" - at `$")
    return f"{place.strip('`').lstrip('.')}: {words}" if place else words
