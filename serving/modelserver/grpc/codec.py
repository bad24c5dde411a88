"""The Open Inference Protocol v2 over gRPC: messages in, arrays; arrays, messages out. Pure.

Specification: https://github.com/kserve/open-inference-protocol, `specification/protocol/inference_grpc.md`. Names,
types and shapes are checked by the same rules as over HTTP. Readings where it is silent:

- an answer is raw when the request is, or when an output has a type that only travels raw;
- elements stand in the field of their type; in another field they are refused, also when they would fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from google.protobuf.message import DecodeError

from serving.engines.base.datatypes import BYTES, DATATYPES, Datatype, Tensor
from serving.modelserver.base.errors import BadRequest, ServingError, TooLarge
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
"""The field of each type; a type without one travels raw."""
LARGEST_HEAD: Final = 4096  # bytes of a request without its tensors; a larger one is not kept
LARGE: Final = 64 * 1024  # bytes of a request: smaller ones are decoded sooner than taken apart
BYTES_PER_NUMBER: Final = 4  # of what is not raw: so many FP32 as there may be numbers in JSON
RAW_INPUTS: Final = 7
RAW_OUTPUTS: Final = 6
"""Numbers of `raw_input_contents` and `raw_output_contents`."""
_SHOWN: Final = 100  # characters of a caller's word that an error repeats


class Input(NamedTuple):
    """An input as a request declares it and the model takes it; `sent` is the type of raw contents."""

    name: str
    shape: Sequence[int]
    sent: Datatype
    taken: Datatype


class Head(msgspec.Struct, frozen=True):
    """All of a request but its tensors, checked: `content` are the bytes that say it, before raw ones."""

    content: bytes
    message: Any
    inputs: Sequence[Input]
    outputs: Sequence[str]
    parameters: Mapping[str, Any] | None


class Request(msgspec.Struct, frozen=True):
    """A message: `raw` are its tensors, in the order of the inputs, when it is sent so.

    `head` is one that was checked before: callers say the same again and again.
    """

    message: Any
    raw: Sequence[bytes | memoryview]
    content: bytes
    head: Head | None = None


class GrpcCodec:
    """Messages of the model whose messages over HTTP are `codec`."""

    def __init__(self, codec: V2Codec) -> None:
        self._codec = codec
        self._most = codec.limits.json_numbers
        self._head: Head | None = None  # of the last request that was raw
        self._told: tuple[Any, bytes] | None = None  # an answer's head, and what it was made of

    def parse(self, content: bytes) -> Request:
        """A request of any model. Raises BadRequest, TooLarge."""
        head, whole = self._head, content
        if head is not None and content.startswith(head.content):
            tails = fields_from(content, len(head.content), RAW_INPUTS)
            if tails is not None and len(tails) == len(head.inputs):
                return Request(head.message, tails, content, head)
        raw: Sequence[memoryview] = ()
        if len(content) > LARGE:
            content, raw = split(content, RAW_INPUTS, self._most * BYTES_PER_NUMBER)
        try:
            message = ModelInferRequest.FromString(content)
        except DecodeError as error:
            raise BadRequest("the message is no ModelInferRequest") from error
        return Request(message, raw or message.raw_input_contents, whole)

    def decode(self, request: Request) -> PreparedRequest:
        """What it asks the engine. Raises BadRequest, TooLarge."""
        message, raw, head = request.message, request.raw, request.head
        if head is None:
            head = self._checked(request)
        inputs: dict[str, Tensor] = {}
        for index, one in enumerate(head.inputs):
            inputs[one.name] = _of_raw(one, raw[index]) if raw else self._of_contents(one, message.inputs[index])
        return PreparedRequest(inputs, head.outputs, [bool(raw)] * len(head.outputs), message.id, head.parameters)

    def _checked(self, request: Request) -> Head:
        """The head, which is kept if it is that of a small raw request. Raises BadRequest, TooLarge."""
        message, raw = request.message, request.raw
        if message.parameters:
            check_extensions(message.parameters)
        if raw and len(raw) != len(message.inputs):
            raise BadRequest(f"raw_input_contents has {len(raw)} tensors for {len(message.inputs)} inputs")
        inputs: dict[str, Input] = {}
        for one in message.inputs:
            if one.name in inputs:
                raise BadRequest(f"input {one.name!r} is given twice")
            if raw and one.HasField("contents"):
                raise BadRequest(f"input {one.name!r} has contents beside raw_input_contents")
            inputs[one.name] = self._input(one)
        self._codec.check_complete(inputs)
        parameters = dict(message.parameters) if message.parameters else None
        said = request.content[: len(request.content) - sum(map(field_size, raw))]
        head = Head(said, message, tuple(inputs.values()), self._requested(message.outputs), parameters)
        if raw and len(said) <= LARGEST_HEAD and _is_head(request, said):
            self._head = head
        return head

    def encode(self, call: PreparedRequest, answers: Sequence[Tensor]) -> bytes:
        """The answer."""
        types = [self._codec.datatype_of(name, tensor) for name, tensor in zip(call.outputs, answers, strict=True)]
        if any(call.binary) or any(datatype.name not in CONTENTS for datatype in types):
            contents = [tensors.to_bytes(tensor, datatype) for tensor, datatype in zip(answers, types, strict=True)]
            return joined(self._answer_head(call, answers, types), RAW_OUTPUTS, contents)
        answer = self._answer(call, answers, types)
        for output, tensor, datatype in zip(answer.outputs, answers, types, strict=True):
            getattr(output.contents, CONTENTS[datatype.name]).extend(_elements(tensor, datatype))
        return bytes(answer.SerializeToString())

    def _answer_head(self, call: PreparedRequest, answers: Sequence[Tensor], types: Sequence[Datatype]) -> bytes:
        """All of an answer but raw tensors, made anew when it is another than the last one."""
        key = call.id, call.outputs, types, [tensor.shape for tensor in answers]
        told = self._told
        if told is None or told[0] != key:
            told = self._told = key, bytes(self._answer(call, answers, types).SerializeToString())
        return told[1]

    def _answer(self, call: PreparedRequest, answers: Sequence[Tensor], types: Sequence[Datatype]) -> Any:
        answer = ModelInferResponse(model_name=self._codec.name, model_version=self._codec.version, id=call.id)
        for name, datatype, tensor in zip(call.outputs, types, answers, strict=True):
            answer.outputs.add(name=name, datatype=datatype.name, shape=tensor.shape)
        return answer

    def _input(self, one: Any) -> Input:
        name = one.name
        if one.parameters:
            check_extensions(one.parameters)
        spec, taken = self._codec.spec(name)
        datatype = DATATYPES.get(one.datatype)
        if datatype is None:
            raise BadRequest(f"input {name!r}: there is no datatype {one.datatype[:_SHOWN]!r}")
        shape = list(one.shape)
        tensors.check_against(spec, datatype, shape)
        return Input(name, shape, datatype, taken)

    def _of_contents(self, given: Input, one: Any) -> Tensor:
        values = self._contents(given.name, one.contents, given.sent)
        return tensors.from_numbers(given.name, given.taken if given.sent.is_float else given.sent, given.shape, values)

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


def _is_head(request: Request, said: bytes) -> bool:
    """Whether the request is `said`, whole fields without a raw tensor, and its raw tensors behind that."""
    tails = fields_from(request.content, len(said), RAW_INPUTS)
    if tails is None or len(tails) != len(request.raw):
        return False
    try:
        return not split(said, RAW_INPUTS, LARGEST_HEAD)[1]
    except ServingError:
        return False


def _of_raw(given: Input, content: bytes | memoryview) -> Tensor:
    array = tensors.from_bytes(given.name, given.sent, given.shape, memoryview(content))
    return tensors.narrowed(given.name, array, given.taken) if given.taken.is_float else array


def _elements(tensor: Tensor, datatype: Datatype) -> list[Any]:
    values: list[Any] = tensor.ravel().tolist()
    if datatype.name == BYTES:
        return [item if isinstance(item, bytes) else str(item).encode() for item in values]
    return values
