"""Decode and encode the messages of the Open Inference Protocol v2 over gRPC. Pure.

Specification: https://github.com/kserve/open-inference-protocol, `specification/protocol/inference_grpc.md`. Names,
types and shapes are checked by the same rules as over HTTP. Where the specification gives no rule:

- A response is raw when the request is raw, or when the type of an output has no `contents` field.
- Elements must be in the field of their type. In another field they are rejected, even when they would fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from google.protobuf.message import DecodeError

from serving.engines.base.datatypes import BYTES, DATATYPES, Datatype, Tensor
from serving.modelserver.base.errors import ContentTooLarge, InvalidRequest, ServingError
from serving.modelserver.codec import tensors
from serving.modelserver.codec.protocol_v2 import PreparedRequest, V2Codec, check_extensions
from serving.modelserver.grpc.messages import ModelInferRequest, ModelInferResponse
from serving.modelserver.grpc.wire import field_size, fields_from, joined, split

CONTENTS: Final = {
    "BOOL": "bool_contents",
    "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents", "INT64": "int64_contents",
    "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents",
    BYTES: "bytes_contents",
}  # fmt: skip
"""The `contents` field of each type; a type without one is only sent raw."""
MAX_HEAD_SIZE: Final = 4096  # bytes of a request without its tensors; a larger head is not cached
LARGE: Final = 64 * 1024  # bytes of a request; for smaller ones decoding is faster than splitting
BYTES_PER_NUMBER: Final = 4  # bounds contents that are not raw: as many FP32 as there may be numbers in JSON
RAW_INPUTS: Final = 7
RAW_OUTPUTS: Final = 6
"""Field numbers of `raw_input_contents` and `raw_output_contents`."""
_SHOWN: Final = 100  # characters of a request that an error repeats


class RequestInput(NamedTuple):
    """A declared input: `sent` is the datatype of the request's contents, `taken` is the datatype of the model."""

    name: str
    shape: Sequence[int]
    sent: Datatype
    taken: Datatype


class RequestHead(msgspec.Struct, frozen=True):
    """A validated request without its tensors. `content` are its bytes in the message, before the raw tensors."""

    content: bytes
    message: Any
    inputs: Sequence[RequestInput]
    outputs: Sequence[str]
    parameters: Mapping[str, Any] | None


class GrpcRequest(msgspec.Struct, frozen=True):
    """A parsed request. `raw` are its raw tensors, in the order of the inputs; empty when its contents are typed.

    `head` is the validated head of an earlier request with the same bytes: clients often repeat it.
    """

    message: Any
    raw: Sequence[bytes | memoryview]
    content: bytes
    head: RequestHead | None = None


class GrpcCodec:
    """The gRPC codec of a model; `codec` is its codec over HTTP."""

    def __init__(self, codec: V2Codec) -> None:
        self._codec = codec
        self._most = codec.limits.json_numbers
        self._head: RequestHead | None = None  # of the last raw request
        self._response_head: tuple[Any, bytes] | None = None  # the last one, and the key that it was made for

    def parse(self, content: bytes) -> GrpcRequest:
        """Parse a request for any model. Raises InvalidRequest, ContentTooLarge."""
        head, whole = self._head, content
        if head is not None and content.startswith(head.content):
            tails = fields_from(content, len(head.content), RAW_INPUTS)
            if tails is not None and len(tails) == len(head.inputs):
                return GrpcRequest(head.message, tails, content, head)
        raw: Sequence[memoryview] = ()
        if len(content) > LARGE:
            content, raw = split(content, RAW_INPUTS, self._most * BYTES_PER_NUMBER)
        try:
            message = ModelInferRequest.FromString(content)
        except DecodeError as error:
            raise InvalidRequest("the message is not a ModelInferRequest") from error
        return GrpcRequest(message, raw or message.raw_input_contents, whole)

    def decode(self, request: GrpcRequest) -> PreparedRequest:
        """Return the call of a parsed request. Raises InvalidRequest, ContentTooLarge."""
        message, raw, head = request.message, request.raw, request.head
        if head is None:
            head = self._check_head(request)
        inputs: dict[str, Tensor] = {}
        for index, one in enumerate(head.inputs):
            if raw:
                tensor = tensors.from_bytes(one.name, one.sent, one.shape, memoryview(raw[index]))
                inputs[one.name] = tensors.narrowed(one.name, tensor, one.taken) if one.taken.is_float else tensor
            else:
                values = self._elements(one.name, message.inputs[index].contents, one.sent)
                datatype = one.taken if one.sent.is_float else one.sent
                inputs[one.name] = tensors.from_numbers(one.name, datatype, one.shape, values)
        return PreparedRequest(inputs, head.outputs, [bool(raw)] * len(head.outputs), message.id, head.parameters)

    def _check_head(self, request: GrpcRequest) -> RequestHead:
        """Validate and return the head, and cache that of a small raw request.

        Raises InvalidRequest, ContentTooLarge.
        """
        message, raw = request.message, request.raw
        if message.parameters:
            check_extensions(message.parameters)
        if raw and len(raw) != len(message.inputs):
            raise InvalidRequest(f"raw_input_contents has {len(raw)} tensors for {len(message.inputs)} inputs")
        inputs: dict[str, RequestInput] = {}
        for one in message.inputs:
            if one.name in inputs:
                raise InvalidRequest(f"input {one.name!r} is given twice")
            if raw and one.HasField("contents"):
                raise InvalidRequest(f"input {one.name!r} has both contents and raw_input_contents: send one of them")
            inputs[one.name] = self._input(one)
        self._codec.check_complete(inputs)
        parameters = dict(message.parameters) if message.parameters else None
        content = request.content[: len(request.content) - sum(map(field_size, raw))]
        outputs = self._codec.outputs
        if message.outputs:
            for output in message.outputs:
                check_extensions(output.parameters)
            outputs = [output.name for output in message.outputs]
            self._codec.check_outputs(outputs)
        head = RequestHead(content, message, tuple(inputs.values()), outputs, parameters)
        if raw and len(content) <= MAX_HEAD_SIZE and _is_head(request, content):
            self._head = head
        return head

    def encode(self, call: PreparedRequest, outputs: Sequence[Tensor]) -> bytes:
        """Return the response message."""
        types = [self._codec.datatype_of(name, tensor) for name, tensor in zip(call.outputs, outputs, strict=True)]
        if any(call.binary) or any(datatype.name not in CONTENTS for datatype in types):
            contents = [tensors.to_bytes(tensor, datatype) for tensor, datatype in zip(outputs, types, strict=True)]
            key = call.id, call.outputs, types, [tensor.shape for tensor in outputs]
            cached = self._response_head
            if cached is None or cached[0] != key:
                cached = self._response_head = key, bytes(self._response(call, outputs, types).SerializeToString())
            return joined(cached[1], RAW_OUTPUTS, contents)
        response = self._response(call, outputs, types)
        for output, tensor, datatype in zip(response.outputs, outputs, types, strict=True):
            values = tensor.ravel().tolist()
            if datatype.name == BYTES:
                values = [item if isinstance(item, bytes) else str(item).encode() for item in values]
            getattr(output.contents, CONTENTS[datatype.name]).extend(values)
        return bytes(response.SerializeToString())

    def _response(self, call: PreparedRequest, outputs: Sequence[Tensor], types: Sequence[Datatype]) -> Any:
        response = ModelInferResponse(model_name=self._codec.name, model_version=self._codec.version, id=call.id)
        for name, datatype, tensor in zip(call.outputs, types, outputs, strict=True):
            response.outputs.add(name=name, datatype=datatype.name, shape=tensor.shape)
        return response

    def _input(self, one: Any) -> RequestInput:
        name = one.name
        if one.parameters:
            check_extensions(one.parameters)
        spec, taken = self._codec.spec(name)
        datatype = DATATYPES.get(one.datatype)
        if datatype is None:
            raise InvalidRequest(f"input {name!r}: unknown datatype {one.datatype[:_SHOWN]!r}")
        shape = list(one.shape)
        tensors.check_against(spec, datatype, shape)
        return RequestInput(name, shape, datatype, taken)

    def _elements(self, name: str, contents: Any, datatype: Datatype) -> list[Any]:
        field = CONTENTS.get(datatype.name)
        if field is None:
            raise InvalidRequest(
                f"input {name!r}: {datatype.name} has no contents field: send it in raw_input_contents"
            )
        for descriptor, values in contents.ListFields():
            if descriptor.name != field:
                raise InvalidRequest(f"input {name!r} is {datatype.name}: send its elements in contents.{field}")
            if len(values) > self._most:
                raise ContentTooLarge(f"contents has more than {self._most} elements: send them in raw_input_contents")
            return list(values)
        return []


def _is_head(request: GrpcRequest, head: bytes) -> bool:
    """Return whether `head` is complete fields without raw tensors, and only the raw tensors follow it."""
    tails = fields_from(request.content, len(head), RAW_INPUTS)
    if tails is None or len(tails) != len(request.raw):
        return False
    try:
        return not split(head, RAW_INPUTS, MAX_HEAD_SIZE)[1]
    except ServingError:
        return False
