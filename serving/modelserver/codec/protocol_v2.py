"""The Open Inference Protocol v2 over HTTP: messages in, arrays; arrays, messages out. Pure.

Specification: https://github.com/kserve/open-inference-protocol, `specification/protocol/inference_rest.md`; the binary
tensor data extension is Triton's (`protocol/extension_binary_data.md`). Readings where both are silent: `tensors`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec

from serving.engines.base.datatypes import BF16, DATATYPES, Datatype, Tensor, datatype_of
from serving.engines.base.engine import Signature, TensorSpec
from serving.modelserver.base.errors import BadRequest
from serving.modelserver.base.json_names import check_names
from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.codec import tensors
from serving.modelserver.codec.json_values import to_flat
from serving.modelserver.codec.messages import (
    NESTED,
    REQUEST,
    InferRequest,
    InferResponse,
    InputTensor,
    OutputTensor,
    Parameters,
    check_elements,
    element_type,
    explain_decode_error,
)

UNSUPPORTED: Final = frozenset({"classification", "shared_memory_region"})
"""Parameters of extensions that change what a request means, and that this server does not have."""

_ENCODER: Final = msgspec.json.Encoder()
Flags: TypeAlias = Sequence[bool]


class PreparedRequest(msgspec.Struct, frozen=True):
    """A decoded request: what the engine is asked, and how each output travels.

    `parameters` are the request's own: no engine sees them, requests with others share no batch.
    """

    inputs: Mapping[str, Tensor]
    outputs: Sequence[str]
    binary: Flags
    id: str
    parameters: Mapping[str, Any] | None = None


class ResponseBody(msgspec.Struct, frozen=True):
    """A body; `json_length` is where binary data begins, None without any."""

    body: bytes
    json_length: int | None = None


CallT = TypeVar("CallT", bound=PreparedRequest)


class ProtocolCodec(Protocol[CallT]):
    """A protocol over HTTP, of one model: what a body asks the engine, and what its answer is as a body."""

    def decode(self, body: bytes, json_length: int | None = None) -> CallT:
        """A request, whose JSON has `json_length` bytes (None: all). Raises BadRequest, TooLarge."""
        ...

    def encode(self, call: CallT, answers: Sequence[Tensor]) -> ResponseBody:
        """The answer to `call`. Raises BadRequest, ModelFailed."""
        ...


class V2Codec:
    """Messages of one model.

    `specs` are its inputs by name, `outputs` those of a request that names none; the other protocols use both, too.
    """

    def __init__(self, name: str, version: str, signature: Signature, limits: ServerLimits) -> None:
        self.name = name
        self.version = version
        self.limits = limits
        self.specs = {spec.name: (spec, DATATYPES[spec.datatype]) for spec in signature.inputs}
        self.outputs = list(signature.usual)
        self._outputs = frozenset(spec.name for spec in signature.outputs)
        self._bf16 = frozenset(spec.name for spec in signature.outputs if spec.datatype == BF16)

    def decode(self, body: bytes, json_length: int | None = None) -> PreparedRequest:
        """A request, whose JSON has `json_length` bytes (None: all). Raises BadRequest, TooLarge."""
        if json_length is None:
            message, rest = body, memoryview(b"")
        elif 0 <= json_length <= len(body):
            view = memoryview(body)
            message, rest = bytes(view[:json_length]), view[json_length:]
        else:
            raise BadRequest(f"Inference-Header-Content-Length is {json_length}, the body has {len(body)} bytes")
        request = self._parse(message)
        check_names(message, request.members)
        _check_parameters(request.parameters)
        outputs, binary = self._requested(request)
        return PreparedRequest(
            self._inputs(request.inputs, rest), outputs, binary, request.id or "", request.parameters
        )

    def encode(self, call: PreparedRequest, answers: Sequence[Tensor]) -> ResponseBody:
        """The answer. Raises BadRequest, ModelFailed."""
        blobs: list[bytes] = []
        outputs = []
        for name, binary, tensor in zip(call.outputs, call.binary, answers, strict=True):
            datatype = self.datatype_of(name, tensor)
            if binary:
                blob = tensors.to_bytes(tensor, datatype)
                blobs.append(blob)
                outputs.append(
                    OutputTensor(name, datatype.name, tensor.shape, parameters={"binary_data_size": len(blob)})
                )
            else:
                outputs.append(OutputTensor(name, datatype.name, tensor.shape, data=to_flat(name, datatype, tensor)))
        message = _ENCODER.encode(InferResponse(self.name, self.version, outputs, call.id))
        return ResponseBody(message + b"".join(blobs), len(message)) if blobs else ResponseBody(message)

    def datatype_of(self, output: str, tensor: Tensor) -> Datatype:
        """The datatype of the model's answer `output`; engines give BF16 as FP32."""
        return DATATYPES[BF16] if output in self._bf16 else datatype_of(tensor)

    def spec(self, name: str) -> tuple[TensorSpec, Datatype]:
        """Of the input `name`. Raises BadRequest."""
        found = self.specs.get(name)
        if found is None:
            raise BadRequest(f"the model has no input {name[:100]!r}: it takes {', '.join(map(repr, self.specs))}")
        return found

    def check_complete(self, inputs: Mapping[str, object]) -> None:
        """Raise BadRequest unless all inputs are there."""
        if len(inputs) < len(self.specs):
            missing = ", ".join(repr(name) for name in self.specs if name not in inputs)
            raise BadRequest(f"the model needs input {missing} too")

    def check_outputs(self, names: Sequence[str]) -> None:
        """Raise BadRequest unless the model gives all of them, and each is named once."""
        for name in names:
            if name not in self._outputs:
                known = ", ".join(map(repr, sorted(self._outputs)))
                raise BadRequest(f"the model has no output {name[:100]!r}: it gives {known}")
        if len(set(names)) < len(names):
            raise BadRequest("an output is requested twice")

    def _parse(self, message: bytes) -> InferRequest:
        check_elements(message, self.limits.json_numbers)
        try:
            return REQUEST.decode(message)
        except msgspec.ValidationError as error:
            return self._parse_nested(message, error)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(f"the body is no JSON: {explain_decode_error(error)}") from error

    def _parse_nested(self, message: bytes, first: msgspec.ValidationError) -> InferRequest:
        """Nested data fails the fast decoder; so does what is wrong, and then `first` says why."""
        try:
            request = NESTED.decode(message)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise BadRequest(explain_decode_error(first)) from first
        inputs = request.inputs
        known = all(given.datatype in DATATYPES for given in inputs)
        if not known or not any(isinstance(item, list) for given in inputs for item in given.data or ()):
            raise BadRequest(explain_decode_error(first)) from first
        for index, given in enumerate(inputs):
            if given.data is not None:
                flat = tensors.flattened(given.name, given.shape, given.data)
                given.data = tensors.strict(flat, element_type(given.datatype), f"inputs[{index}].data")
        return request

    def _inputs(self, given: Sequence[InputTensor], rest: memoryview) -> dict[str, Tensor]:
        inputs: dict[str, Tensor] = {}
        for one in given:
            if one.name in inputs:
                raise BadRequest(f"input {one.name!r} is given twice")
            spec, taken = self.spec(one.name)
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
        self.check_complete(inputs)
        return inputs

    def _requested(self, request: InferRequest) -> tuple[Sequence[str], Flags]:
        everything = _flag(request.parameters, "binary_data_output", False)
        if not request.outputs:
            return self.outputs, [everything] * len(self.outputs)
        names = [output.name for output in request.outputs]
        self.check_outputs(names)
        flags = [_flag(_check_parameters(output.parameters), "binary_data", everything) for output in request.outputs]
        return names, flags


def check_extensions(names: Iterable[str]) -> None:
    """Raise BadRequest for a parameter that would change what a request means."""
    for name in names:
        if name in UNSUPPORTED:
            raise BadRequest(f"parameter {name!r} belongs to an extension that this server does not have")


def _check_parameters(parameters: Parameters | None) -> Parameters:
    if not parameters:
        return {}
    check_extensions(parameters)
    return parameters


def _flag(parameters: Parameters | None, name: str, default: bool) -> bool:
    value = (parameters or {}).get(name, default)
    if not isinstance(value, bool):
        raise BadRequest(f"parameter {name!r} is true or false")
    return value


def _cut(one: InputTensor, size: Any, rest: memoryview) -> tuple[memoryview, memoryview]:
    if one.data is not None:
        raise BadRequest(f"input {one.name!r} has both data and binary_data_size")
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= len(rest):
        raise BadRequest(f"input {one.name!r}: binary_data_size is no size, or more than the body has left")
    return rest[:size], rest[size:]


def _from_json(one: InputTensor, datatype: Datatype, taken: Datatype) -> Tensor:
    if one.data is None:
        raise BadRequest(f"input {one.name!r} has no data")
    if not tensors.carries(datatype):
        raise BadRequest(f"input {one.name!r}: {datatype.name} travels as binary data only")
    return tensors.from_numbers(one.name, taken if datatype.is_float else datatype, one.shape, one.data)
