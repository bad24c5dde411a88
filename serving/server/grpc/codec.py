"""The Open Inference Protocol v2 over gRPC: messages in, arrays; arrays, messages out. Pure.

Specification: https://github.com/kserve/open-inference-protocol, `specification/protocol/inference_grpc.md`. Names,
types and shapes are checked by the same rules as over HTTP. Readings where it is silent:

- an answer is raw when the request is, or when an output has a type that only travels raw;
- elements stand in the field of their type; in another field they are refused, also when they would fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError

from serving.engines.datatypes import BYTES, DATATYPES, Datatype, Tensor
from serving.server import tensors
from serving.server.errors import BadRequest, TooLarge
from serving.server.grpc.messages import ModelInferRequest, ModelInferResponse
from serving.server.grpc.wire import joined, split
from serving.server.protocol_v2 import Call, Codec, check_extensions

CONTENTS: Final = {
    "BOOL": "bool_contents",
    "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents", "INT64": "int64_contents",
    "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents",
    BYTES: "bytes_contents",
}  # fmt: skip
"""The field of each type; a type without one travels raw."""
LARGE: Final = 64 * 1024  # bytes of a request: smaller ones are decoded sooner than taken apart
BYTES_PER_NUMBER: Final = 4  # of what is not raw: so many FP32 as there may be numbers in JSON
RAW_INPUTS: Final = 7
RAW_OUTPUTS: Final = 6
"""Numbers of `raw_input_contents` and `raw_output_contents`."""
_SHOWN: Final = 100  # characters of a caller's word that an error repeats


@dataclass(frozen=True, slots=True)
class Request:
    """A message: `raw` are its tensors, in the order of the inputs, when it is sent so."""

    message: Any
    raw: Sequence[bytes | memoryview]


class GrpcCodec:
    """Messages of the model whose messages over HTTP are `codec`."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._most = codec.limits.json_numbers

    def parse(self, content: bytes) -> Request:
        """A request of any model. Raises BadRequest, TooLarge."""
        raw: Sequence[memoryview] = ()
        if len(content) > LARGE:
            content, raw = split(content, RAW_INPUTS, self._most * BYTES_PER_NUMBER)
        try:
            message = ModelInferRequest.FromString(content)
        except DecodeError as error:
            raise BadRequest("the message is no ModelInferRequest") from error
        return Request(message, raw or message.raw_input_contents)

    def decode(self, request: Request) -> Call:
        """What it asks the engine. Raises BadRequest, TooLarge."""
        message, raw = request.message, request.raw
        if message.parameters:
            check_extensions(message.parameters)
        given = message.inputs
        if raw and len(raw) != len(given):
            raise BadRequest(f"raw_input_contents has {len(raw)} tensors for {len(given)} inputs")
        inputs: dict[str, Tensor] = {}
        for index, one in enumerate(given):
            name = one.name
            if name in inputs:
                raise BadRequest(f"input {name!r} is given twice")
            inputs[name] = self._input(name, one, raw[index] if raw else None)
        self._codec.check_complete(inputs)
        outputs = self._requested(message.outputs)
        return Call(inputs, outputs, [bool(raw)] * len(outputs), message.id)

    def encode(self, call: Call, answers: Sequence[Tensor]) -> bytes:
        """The answer."""
        answer = ModelInferResponse(model_name=self._codec.name, model_version=self._codec.version, id=call.id)
        types = [self._codec.datatype_of(name, tensor) for name, tensor in zip(call.outputs, answers, strict=True)]
        raw = any(call.binary) or any(datatype.name not in CONTENTS for datatype in types)
        contents: list[bytes] = []
        for name, datatype, tensor in zip(call.outputs, types, answers, strict=True):
            output = answer.outputs.add(name=name, datatype=datatype.name, shape=tensor.shape)
            if raw:
                contents.append(tensors.to_bytes(tensor, datatype))
            else:
                getattr(output.contents, CONTENTS[datatype.name]).extend(_elements(tensor, datatype))
        return joined(answer.SerializeToString(), RAW_OUTPUTS, contents)

    def _input(self, name: str, one: Any, raw: bytes | memoryview | None) -> Tensor:
        if one.parameters:
            check_extensions(one.parameters)
        spec, taken = self._codec.spec(name)
        datatype = DATATYPES.get(one.datatype)
        if datatype is None:
            raise BadRequest(f"input {name!r}: there is no datatype {one.datatype[:_SHOWN]!r}")
        shape = list(one.shape)
        tensors.check_against(spec, datatype, shape)
        if raw is None:
            values = self._contents(name, one.contents, datatype)
            return tensors.from_numbers(name, taken if datatype.is_float else datatype, shape, values)
        if one.HasField("contents"):
            raise BadRequest(f"input {name!r} has contents beside raw_input_contents")
        array = tensors.from_bytes(name, datatype, shape, memoryview(raw))
        return tensors.narrowed(name, array, taken) if taken.is_float else array

    def _contents(self, name: str, contents: Any, datatype: Datatype) -> list[Any]:
        field = CONTENTS.get(datatype.name)
        if field is None:
            raise BadRequest(f"input {name!r}: {datatype.name} travels in raw_input_contents only")
        for descriptor, values in contents.ListFields():
            if descriptor.name != field:
                raise BadRequest(f"input {name!r} is {datatype.name}, whose elements stand in {field}")
            if len(values) > self._most:
                raise TooLarge(f"contents has more than {self._most} elements: send them in raw_input_contents")
            return list(values)
        return []

    def _requested(self, outputs: Sequence[Any]) -> Sequence[str]:
        if not outputs:
            return self._codec.outputs
        for output in outputs:
            check_extensions(output.parameters)
        names = [output.name for output in outputs]
        self._codec.check_outputs(names)
        return names


def _elements(tensor: Tensor, datatype: Datatype) -> list[Any]:
    values: list[Any] = tensor.ravel().tolist()
    if datatype.name == BYTES:
        return [item if isinstance(item, bytes) else str(item).encode() for item in values]
    return values
