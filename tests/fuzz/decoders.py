"""Decoders of all protocols: what they take says what they give, and what they refuse is the caller's fault."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from typing import Any

from google.protobuf.message import DecodeError
from hypothesis import strategies as st

from serving.engines.base.datatypes import BYTES, Tensor
from serving.engines.base.engine import Signature, TensorSpec
from serving.modelserver.base.errors import ServingError
from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.codec.cloud_event import from_binary, from_structured, to_binary
from serving.modelserver.codec.protocol_generate import GenerateCodec
from serving.modelserver.codec.protocol_invocations import InvocationsCodec
from serving.modelserver.codec.protocol_v1 import V1Codec
from serving.modelserver.codec.protocol_v2 import PreparedRequest, V2Codec
from serving.modelserver.grpc.codec import CONTENTS, GrpcCodec
from serving.modelserver.grpc.messages import ModelInferRequest
from tests.fuzz import messages, oracle
from tests.fuzz.messages import INPUT, OUTPUT, Message
from tests.fuzz.target import Target

CALLERS_FAULTS = frozenset({400, 413, 415})
LONGEST_REASON = 2000  # characters of an error: it may repeat a name, not the message

Decode = Callable[[V2Codec, Message], PreparedRequest]
Compare = Callable[[Message, PreparedRequest], None]


def codec_of(spec: TensorSpec) -> V2Codec:
    """Of a model that gives what it gets."""
    output = TensorSpec(OUTPUT, spec.datatype, spec.shape)
    return V2Codec("m", "m-00001", Signature("test", (spec,), (output,)), ServerLimits())


@contextmanager
def refusals() -> Iterator[None]:
    """What is refused is so in one line, for a fault of the caller's."""
    try:
        yield
    except ServingError as error:
        assert error.status in CALLERS_FAULTS, error
        words = str(error)
        assert words and "\n" not in words and len(words) < LONGEST_REASON, words


def checked(decode: Decode, compare: Compare) -> Callable[[], AbstractContextManager[Callable[[Any], None]]]:
    """The check of a decoder."""

    def check(message: Message) -> None:
        with refusals():
            compare(message, decode(codec_of(message.spec), message))

    return lambda: nullcontext(check)


def same_v2(message: Message, call: PreparedRequest) -> None:
    """A v2 request in JSON, with binary data behind it."""
    length = len(message.body) if message.json_length is None else message.json_length
    request, rest = oracle.read_json(message.body[:length]), message.body[length:]
    (given,) = request["inputs"]
    tensor = _only(call)
    oracle.check_tensor(message.spec, tensor, given["shape"])
    size = (given.get("parameters") or {}).get("binary_data_size")
    if size is None:
        assert not rest
        oracle.check_values(message.spec, tensor, oracle.leaves(given["data"]))
    else:
        assert size == len(rest) and given.get("data") is None
        oracle.check_bytes(given["datatype"], tensor, rest)
    assert call.id == (request.get("id") or "")
    assert list(call.outputs) == [OUTPUT]


def same_v1(message: Message, call: PreparedRequest) -> None:
    """A v1 request: rows, or columns."""
    request = oracle.read_json(message.body)
    given = request.get("instances")
    given = request["inputs"] if given is None else given
    if isinstance(given, dict):
        ((name, value),) = given.items()
        assert name == INPUT
    else:
        value = [_unnamed(message.spec, row) for row in given]
    _check_nested(message.spec, _only(call), value, oracle.shape_of(value))


def same_generate(message: Message, call: PreparedRequest) -> None:
    """A generate request; a lone value is a tensor of one element."""
    request = oracle.read_json(message.body)
    value = request[INPUT] if INPUT in request else request["parameters"][INPUT]
    shape = oracle.shape_of(value)
    missing = len(message.spec.shape or ()) - len(shape)
    _check_nested(message.spec, _only(call), value, (1,) * missing + shape)


def same_invocations(message: Message, call: PreparedRequest) -> None:
    """A request of MLflow's: the tensor has the model's type, and as many elements as the data."""
    request = oracle.read_json(message.body)
    (form,) = request.keys() - {"params"}
    tensor = _only(call)
    oracle.check_tensor(message.spec, tensor, tensor.shape)
    value = request[form]["data"] if form == "dataframe_split" else request[form]
    records = value if isinstance(value, list) and value and isinstance(value[0], dict) else []
    if message.spec.datatype != BYTES:
        given = (
            [row.get(INPUT) for row in records] if records else value.get(INPUT) if isinstance(value, dict) else value
        )
        assert tensor.size == sum(1 for _ in oracle.leaves(given))


def same_grpc(message: Message, call: PreparedRequest) -> None:
    """A message of protobuf, by protobuf itself."""
    try:
        request = ModelInferRequest.FromString(message.body)
    except DecodeError as error:
        raise AssertionError("what protobuf cannot read was taken") from error
    (given,) = request.inputs
    tensor = _only(call)
    oracle.check_tensor(message.spec, tensor, given.shape)
    if request.raw_input_contents:
        (content,) = request.raw_input_contents
        oracle.check_bytes(given.datatype, tensor, content)
    else:
        oracle.check_values(message.spec, tensor, getattr(given.contents, CONTENTS[given.datatype]))
    assert call.id == request.id


def check_event(body: bytes) -> None:
    """A structured event: no attribute is converted or made up, data is what it was."""
    with refusals():
        event = from_structured(body)
        try:
            members = oracle.read_json(body)
        except (oracle.Ambiguous, UnicodeDecodeError):  # within its data, which another decoder reads
            return
        assert event.attributes.items() <= {name: _canonical(value) for name, value in members.items()}.items()
        assert {"id", "source", "type"} <= event.attributes.keys()
        if members.get("data_base64") is not None:
            assert event.data == base64.b64decode(members["data_base64"], validate=True)
        elif "data" in members and event.data:
            assert oracle.read_json(event.data) == members["data"]


def check_headers(headers: list[tuple[bytes, bytes]]) -> None:
    """An event of headers: none of its attributes can end a header, and it survives the way back."""
    with refusals():
        event = from_binary(headers)
        back = to_binary(event)
        assert all(0x20 < byte < 0x7F for byte in chain.from_iterable(value for _, value in back))
        assert from_binary(back).attributes == event.attributes


def _only(call: PreparedRequest) -> Tensor:
    (name,) = call.inputs
    assert name == INPUT
    return call.inputs[name]


def _unnamed(spec: TensorSpec, row: Any) -> Any:
    named = isinstance(row, dict) and row.keys() == {spec.name}
    return row[spec.name] if named else row


def _check_nested(spec: TensorSpec, tensor: Tensor, value: Any, shape: tuple[int, ...]) -> None:
    oracle.check_tensor(spec, tensor, shape)
    oracle.check_values(spec, tensor, oracle.leaves(value))


def _canonical(value: Any) -> Any:
    return str(value).lower() if isinstance(value, (bool, int)) else value


def _grpc(codec: V2Codec, message: Message) -> PreparedRequest:
    made = GrpcCodec(codec)
    return made.decode(made.parse(message.body))


HEADERS: Mapping[bytes, bytes] = {f"ce-{name}".encode(): value.encode() for name, value in messages.ATTRIBUTES.items()}
ODD_HEADERS = st.lists(
    st.tuples(
        st.sampled_from([*HEADERS, b"ce-time", b"ce-x", b"ce-", b"x"]),
        st.binary(max_size=8) | st.sampled_from([b"1.0", b"x", b'"a b"', b"%C3%9C", b"%0d%0a", b"%ff", b"%"]),
    ),
    max_size=2,
)
EVENT_HEADERS = ODD_HEADERS.map(lambda odd: [*(item for item in HEADERS.items() if item[0] not in dict(odd)), *odd])

TARGETS = [
    Target(
        "v2", messages.v2_messages(), checked(lambda codec, it: codec.decode(it.body, it.json_length), same_v2), 80
    ),
    Target("v1", messages.v1_messages(), checked(lambda codec, it: V1Codec(codec).decode(it.body), same_v1), 60),
    Target(
        "invocations", messages.invocations_messages(),
        checked(lambda codec, it: InvocationsCodec(codec).decode(it.body), same_invocations), 60,
    ),
    Target(
        "generate", messages.generate_messages(),
        checked(lambda codec, it: GenerateCodec(codec).decode(it.body), same_generate), 60,
    ),
    Target("grpc", messages.grpc_messages(), checked(_grpc, same_grpc), 60),
    Target("event", messages.events(), lambda: nullcontext(check_event), 60),
    Target("event-headers", EVENT_HEADERS, lambda: nullcontext(check_headers), 60),
]  # fmt: skip
"""Each is a decoder; together they are the target `decoder`."""
