"""Codec of the Open Inference Protocol v2 over HTTP. Pure.

Specification: https://github.com/kserve/open-inference-protocol, `specification/protocol/inference_rest.md`. The binary
tensor data extension is Triton's (`protocol/extension_binary_data.md`). The module `tensors` has the rules that both
leave open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec

from serving.engines.base.datatypes import BF16, DATATYPES, Datatype, Tensor, datatype_of
from serving.engines.base.engine import Signature, TensorSpec
from serving.modelserver.base.errors import InvalidRequest
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

UNSUPPORTED_PARAMETERS: Final = frozenset({"classification", "shared_memory_region"})
"""Parameters of unsupported extensions that would change the meaning of a request."""

_ENCODER: Final = msgspec.json.Encoder()
Flags: TypeAlias = Sequence[bool]


class PreparedRequest(msgspec.Struct, frozen=True):
    """A decoded request: inputs for the engine, requested outputs, and whether each output is sent as binary data.

    `parameters` are not passed to engines. Requests with different parameters never share a batch.
    """

    inputs: Mapping[str, Tensor]
    outputs: Sequence[str]
    binary: Flags
    id: str
    parameters: Mapping[str, Any] | None = None


class ResponseBody(msgspec.Struct, frozen=True):
    """The body of a response; binary data begins at offset `json_length`, None without binary data."""

    body: bytes
    json_length: int | None = None


RequestT = TypeVar("RequestT", bound=PreparedRequest)


class ProtocolCodec(Protocol[RequestT]):
    """Codec of one HTTP protocol for one model: request bodies to arrays, and arrays to response bodies."""

    def decode(self, body: bytes, json_length: int | None = None) -> RequestT:
        """Return the decoded request; its JSON has `json_length` bytes, None for all.

        Raises InvalidRequest, ContentTooLarge.
        """
        ...

    def encode(self, request: RequestT, results: Sequence[Tensor]) -> ResponseBody:
        """Return the response to `request`. Raises InvalidRequest, ModelFailed."""
        ...


class V2Codec:
    """Codec of the v2 protocol for one model.

    `specs` are the inputs by name, `outputs` the outputs of a request that names none. The codecs of other protocols
    use both as well.
    """

    def __init__(self, name: str, version: str, signature: Signature, limits: ServerLimits) -> None:
        self.name = name
        self.version = version
        self.limits = limits
        self.specs = {spec.name: (spec, DATATYPES[spec.datatype]) for spec in signature.inputs}
        self.outputs = list(signature.default_outputs)
        self._optional = signature.optional_inputs
        self._outputs = {spec.name: spec for spec in signature.outputs}
        self._bf16 = frozenset(spec.name for spec in signature.outputs if spec.datatype == BF16)

    def decode(self, body: bytes, json_length: int | None = None) -> PreparedRequest:
        """Return the decoded request; its JSON has `json_length` bytes, None for all.

        Raises InvalidRequest, ContentTooLarge.
        """
        if json_length is None:
            message, rest = body, memoryview(b"")
        elif 0 <= json_length <= len(body):
            view = memoryview(body)
            message, rest = bytes(view[:json_length]), view[json_length:]
        else:
            raise InvalidRequest(f"Inference-Header-Content-Length is {json_length}, the body has {len(body)} bytes")
        check_elements(message, self.limits.json_numbers)
        try:
            request = REQUEST.decode(message)
        except msgspec.ValidationError as error:
            request = self._parse_nested(message, error)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequest(f"the body is not JSON: {explain_decode_error(error)}") from error
        check_names(message, request.members)
        _check_parameters(request.parameters)
        everything = _flag(request.parameters, "binary_data_output", False)
        outputs, binary = self.outputs, [everything] * len(self.outputs)
        if request.outputs:
            outputs = [output.name for output in request.outputs]
            self.check_outputs(outputs)
            parameters = [_check_parameters(output.parameters) for output in request.outputs]
            binary = [_flag(each, "binary_data", everything) for each in parameters]
        return PreparedRequest(
            self._inputs(request.inputs, rest), outputs, binary, request.id or "", request.parameters
        )

    def encode(self, request: PreparedRequest, results: Sequence[Tensor]) -> ResponseBody:
        """Return the response. Raises InvalidRequest, ModelFailed."""
        blobs: list[bytes] = []
        outputs = []
        for name, binary, tensor in zip(request.outputs, request.binary, results, strict=True):
            datatype = self.datatype_of(name, tensor)
            if binary:
                blob = tensors.to_bytes(tensor, datatype)
                blobs.append(blob)
                outputs.append(
                    OutputTensor(name, datatype.name, tensor.shape, parameters={"binary_data_size": len(blob)})
                )
            else:
                outputs.append(OutputTensor(name, datatype.name, tensor.shape, data=to_flat(name, datatype, tensor)))
        message = _ENCODER.encode(InferResponse(self.name, self.version, outputs, request.id))
        return ResponseBody(message + b"".join(blobs), len(message)) if blobs else ResponseBody(message)

    def datatype_of(self, output: str, tensor: Tensor) -> Datatype:
        """Return the datatype of an output; engines return BF16 as FP32."""
        return DATATYPES[BF16] if output in self._bf16 else datatype_of(tensor)

    def spec(self, name: str) -> tuple[TensorSpec, Datatype]:
        """Return the specification and datatype of the input `name`. Raises InvalidRequest."""
        found = self.specs.get(name)
        if found is None:
            raise InvalidRequest(f"the model has no input {name[:100]!r}: use {', '.join(map(repr, self.specs))}")
        return found

    def is_optional(self, name: str) -> bool:
        """Return whether a request may omit the input `name`."""
        return name in self._optional

    def check_complete(self, inputs: Mapping[str, object]) -> None:
        """Raise InvalidRequest if an input is missing."""
        if len(inputs) < len(self.specs):
            missing = [repr(name) for name in self.specs if name not in inputs and name not in self._optional]
            if missing:
                raise InvalidRequest(f"missing input {', '.join(missing)}")

    def output_spec(self, name: str) -> TensorSpec | None:
        """Return the specification of the output `name`, None if the model has none."""
        return self._outputs.get(name)

    def check_outputs(self, names: Sequence[str]) -> None:
        """Raise InvalidRequest for an unknown or repeated output."""
        for name in names:
            if name not in self._outputs:
                known = ", ".join(map(repr, sorted(self._outputs)))
                raise InvalidRequest(f"the model has no output {name[:100]!r}: use {known}")
        if len(set(names)) < len(names):
            raise InvalidRequest("duplicate requested output")

    def _parse_nested(self, message: bytes, first: msgspec.ValidationError) -> InferRequest:
        """Decode a request with nested data, which the fast decoder refused with the error `first`.

        Raises InvalidRequest with the reason of `first` if the data is not nested.
        """
        try:
            request = NESTED.decode(message)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise InvalidRequest(explain_decode_error(first)) from first
        inputs = request.inputs
        known = all(given.datatype in DATATYPES for given in inputs)
        if not known or not any(isinstance(item, list) for given in inputs for item in given.data or ()):
            raise InvalidRequest(explain_decode_error(first)) from first
        for index, given in enumerate(inputs):
            if given.data is not None:
                flat = tensors.flattened(given.name, given.shape, given.data)
                given.data = tensors.strict(flat, element_type(given.datatype), f"inputs[{index}].data")
        return request

    def _inputs(self, given: Sequence[InputTensor], rest: memoryview) -> dict[str, Tensor]:
        inputs: dict[str, Tensor] = {}
        for one in given:
            if one.name in inputs:
                raise InvalidRequest(f"duplicate input {one.name!r}")
            spec, taken = self.spec(one.name)
            datatype = DATATYPES[one.datatype]
            tensors.check_against(spec, datatype, one.shape)
            size = _check_parameters(one.parameters).get("binary_data_size")
            if size is None:
                if one.data is None:
                    raise InvalidRequest(f"input {one.name!r} has no data")
                if not tensors.carries(datatype):
                    raise InvalidRequest(f"input {one.name!r}: {datatype.name} can be sent only as binary data")
                kind = taken if datatype.is_float else datatype
                inputs[one.name] = tensors.from_numbers(one.name, kind, one.shape, one.data)
            else:
                if one.data is not None:
                    raise InvalidRequest(f"input {one.name!r} has both data and binary_data_size")
                if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= len(rest):
                    raise InvalidRequest(
                        f"input {one.name!r}: invalid binary_data_size: not a size, or exceeds the remaining body"
                    )
                content, rest = rest[:size], rest[size:]
                array = tensors.from_bytes(one.name, datatype, one.shape, content)
                inputs[one.name] = tensors.narrowed(one.name, array, taken) if taken.is_float else array
        if len(rest):
            raise InvalidRequest(f"{len(rest)} extra bytes after the binary data of the inputs")
        self.check_complete(inputs)
        return inputs


def check_extensions(names: Iterable[str]) -> None:
    """Raise InvalidRequest for a parameter of an unsupported extension that would change the meaning of the request."""
    for name in names:
        if name in UNSUPPORTED_PARAMETERS:
            raise InvalidRequest(f"parameter {name!r} belongs to an unsupported extension")


def _check_parameters(parameters: Parameters | None) -> Parameters:
    if not parameters:
        return {}
    check_extensions(parameters)
    return parameters


def _flag(parameters: Parameters | None, name: str, default: bool) -> bool:
    value = (parameters or {}).get(name, default)
    if not isinstance(value, bool):
        raise InvalidRequest(f"parameter {name!r} must be true or false")
    return value
