"""The Open Inference Protocol v2 over HTTP: messages in, arrays; arrays, messages out. Pure.

Specification: https://github.com/kserve/open-inference-protocol, `specification/protocol/inference_rest.md`; the binary
tensor data extension is Triton's (`protocol/extension_binary_data.md`). Readings where both are silent: `tensors`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np

from serving.engines.base import Signature, TensorSpec
from serving.engines.datatypes import BYTES, DATATYPES, Datatype, Tensor, datatype_of
from serving.server import tensors
from serving.server.errors import BadRequest, ModelFailed, TooLarge
from serving.server.limits import Limits
from serving.server.messages import (
    NESTED,
    REQUEST,
    InferRequest,
    InferResponse,
    Input,
    Output,
    Parameters,
    kind_of,
    reason_of,
)

UNSUPPORTED: Final = frozenset({"classification", "shared_memory_region"})
"""Parameters of extensions that change what a request means, and that this server does not have."""

_ENCODER: Final = msgspec.json.Encoder()
Flags: TypeAlias = Sequence[bool]


@dataclass(frozen=True, slots=True)
class Call:
    """A decoded request: what the engine is asked, and how each output travels."""

    inputs: Mapping[str, Tensor]
    outputs: Sequence[str]
    binary: Flags
    id: str


@dataclass(frozen=True, slots=True)
class Reply:
    """A body; `json_length` is where binary data begins, None without any."""

    body: bytes
    json_length: int | None = None


class Codec:
    """Messages of one model."""

    def __init__(self, name: str, version: str, signature: Signature, limits: Limits) -> None:
        self._name = name
        self._version = version
        self._limits = limits
        self._specs = {spec.name: (spec, DATATYPES[spec.datatype]) for spec in signature.inputs}
        self._outputs = [spec.name for spec in signature.outputs]
        self._known_outputs = frozenset(self._outputs)

    def decode(self, body: bytes, json_length: int | None = None) -> Call:
        """A request, whose JSON has `json_length` bytes (None: all). Raises BadRequest, TooLarge."""
        if json_length is None:
            message, rest = body, memoryview(b"")
        elif 0 <= json_length <= len(body):
            view = memoryview(body)
            message, rest = bytes(view[:json_length]), view[json_length:]
        else:
            raise BadRequest(f"Inference-Header-Content-Length is {json_length}, the body has {len(body)} bytes")
        request = self._parse(message)
        _check_parameters(request.parameters)
        outputs, binary = self._requested(request)
        return Call(self._inputs(request.inputs, rest), outputs, binary, request.id)

    def encode(self, call: Call, answers: Sequence[Tensor]) -> Reply:
        """The answer. Raises BadRequest, ModelFailed."""
        blobs: list[bytes] = []
        outputs = []
        for name, binary, tensor in zip(call.outputs, call.binary, answers, strict=True):
            datatype = datatype_of(tensor)
            if binary:
                blob = tensors.to_bytes(tensor, datatype)
                blobs.append(blob)
                outputs.append(Output(name, datatype.name, tensor.shape, parameters={"binary_data_size": len(blob)}))
            else:
                outputs.append(Output(name, datatype.name, tensor.shape, data=_to_list(name, datatype, tensor)))
        message = _ENCODER.encode(InferResponse(self._name, self._version, outputs, call.id))
        return Reply(message + b"".join(blobs), len(message)) if blobs else Reply(message)

    def _parse(self, message: bytes) -> InferRequest:
        most = self._limits.json_numbers
        if len(message) > most and message.count(b",") > most:
            raise TooLarge(f"JSON has more than {most} elements: send them as binary data")
        try:
            return REQUEST.decode(message)
        except msgspec.ValidationError as error:
            return self._parse_nested(message, error)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(f"the body is no JSON: {reason_of(error)}") from error

    def _parse_nested(self, message: bytes, first: msgspec.ValidationError) -> InferRequest:
        """Nested data fails the fast decoder; so does what is wrong, and then `first` says why."""
        try:
            request = NESTED.decode(message)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise BadRequest(reason_of(first)) from first
        inputs = request.inputs
        known = all(given.datatype in DATATYPES for given in inputs)
        if not known or not any(isinstance(item, list) for given in inputs for item in given.data or ()):
            raise BadRequest(reason_of(first)) from first
        for index, given in enumerate(inputs):
            if given.data is not None:
                flat = tensors.flattened(given.name, given.shape, given.data)
                given.data = tensors.strict(flat, kind_of(given.datatype), f"inputs[{index}].data")
        return request

    def _inputs(self, given: Sequence[Input], rest: memoryview) -> dict[str, Tensor]:
        inputs: dict[str, Tensor] = {}
        for one in given:
            if one.name in inputs:
                raise BadRequest(f"input {one.name!r} is given twice")
            spec, taken = self._spec(one.name)
            datatype = DATATYPES[one.datatype]
            tensors.check_against(spec, datatype, one.shape)
            size = _check_parameters(one.parameters).get("binary_data_size")
            if size is None:
                inputs[one.name] = _from_json(one, datatype, taken)
            else:
                content, rest = _cut(one, size, rest)
                array = tensors.from_bytes(one.name, datatype, one.shape, content)
                inputs[one.name] = tensors.narrowed(one.name, array, taken) if taken.is_float else array
        if len(rest):
            raise BadRequest(f"{len(rest)} bytes are left over behind the binary data of the inputs")
        if len(inputs) < len(self._specs):
            missing = ", ".join(repr(name) for name in self._specs if name not in inputs)
            raise BadRequest(f"the model needs input {missing} too")
        return inputs

    def _spec(self, name: str) -> tuple[TensorSpec, Datatype]:
        found = self._specs.get(name)
        if found is None:
            raise BadRequest(f"the model has no input {name[:100]!r}: it takes {', '.join(map(repr, self._specs))}")
        return found

    def _requested(self, request: InferRequest) -> tuple[Sequence[str], Flags]:
        everything = _flag(request.parameters, "binary_data_output", False)
        if not request.outputs:
            return self._outputs, [everything] * len(self._outputs)
        names = [output.name for output in request.outputs]
        for name in names:
            if name not in self._known_outputs:
                known = ", ".join(map(repr, self._outputs))
                raise BadRequest(f"the model has no output {name[:100]!r}: it gives {known}")
        if len(set(names)) < len(names):
            raise BadRequest("an output is requested twice")
        flags = [_flag(_check_parameters(output.parameters), "binary_data", everything) for output in request.outputs]
        return names, flags


def _check_parameters(parameters: Parameters | None) -> Parameters:
    if not parameters:
        return {}
    for name in parameters:
        if name in UNSUPPORTED:
            raise BadRequest(f"parameter {name!r} belongs to an extension that this server does not have")
    return parameters


def _flag(parameters: Parameters | None, name: str, default: bool) -> bool:
    value = (parameters or {}).get(name, default)
    if not isinstance(value, bool):
        raise BadRequest(f"parameter {name!r} is true or false")
    return value


def _cut(one: Input, size: Any, rest: memoryview) -> tuple[memoryview, memoryview]:
    if one.data is not None:
        raise BadRequest(f"input {one.name!r} has both data and binary_data_size")
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= len(rest):
        raise BadRequest(f"input {one.name!r}: binary_data_size is no size, or more than the body has left")
    return rest[:size], rest[size:]


def _from_json(one: Input, datatype: Datatype, taken: Datatype) -> Tensor:
    if one.data is None:
        raise BadRequest(f"input {one.name!r} has no data")
    if not tensors.carries(datatype):
        raise BadRequest(f"input {one.name!r}: {datatype.name} travels as binary data only")
    return tensors.from_numbers(one.name, taken if datatype.is_float else datatype, one.shape, one.data)


def _to_list(name: str, datatype: Datatype, tensor: Tensor) -> list[Any]:
    if not tensors.carries(datatype):
        raise BadRequest(f"output {name!r} is {datatype.name}, which JSON cannot carry: ask for it as binary data")
    if datatype.is_float and not np.isfinite(tensor).all():
        raise ModelFailed(f"output {name!r} has NaN or infinity, which JSON cannot carry: ask for it as binary data")
    values: list[Any] = tensor.ravel().tolist()
    if datatype.name == BYTES:
        return [_text(name, value) for value in values]
    return values


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return bytes(value).decode()
    except UnicodeDecodeError as error:
        raise ModelFailed(f"output {name!r} is no UTF-8, as JSON needs: ask for it as binary data") from error
