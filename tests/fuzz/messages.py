"""Random messages of all protocols: most of them nearly right, some mutilated, a few of pure noise."""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st

from serving.engines.base.datatypes import BYTES, DATATYPES
from serving.engines.base.engine import ANY, TensorSpec
from serving.modelserver.grpc.codec import CONTENTS
from serving.modelserver.grpc.messages import ModelInferRequest

T = TypeVar("T")

INPUT, OUTPUT = "x", "y"
SHAPES: list[tuple[int, ...] | None] = [(ANY,), (ANY, 2), (2, 3), (), None]
"""What models take; None: anything."""
NAMES = st.sampled_from([INPUT, INPUT, INPUT, OUTPUT, "", "parameters", "b64"]) | st.text(max_size=3)
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from([0, -1, 1 << 31, 1 << 63, 1 << 64, 1e39, 1e300, -0.0, "1", "NaN", "\x00", "\ud800"])
)  # fmt: skip
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
LOOKALIKES = st.sampled_from(["1", "1.0", "true", "", 1, 1.0, 1.5, 1e3, -1, True, False, None, [1], {"b64": "MQ=="}])
"""What a lenient reader takes for a value of another type."""
FLOATS = ["FP16", "BF16", "FP32", "FP64"]
SPECS = st.builds(TensorSpec, st.just(INPUT), st.sampled_from([*DATATYPES, *FLOATS]), st.sampled_from(SHAPES))
"""Of the only input of a model."""


@dataclass(frozen=True, slots=True)
class Message:
    """A body for a model that takes `spec`; `json_length` as its header says."""

    spec: TensorSpec
    body: bytes
    json_length: int | None = None


def mostly(good: st.SearchStrategy[T], odd: st.SearchStrategy[T], share: int = 8) -> st.SearchStrategy[T]:
    """The good, but once in `share` times."""
    return st.integers(1, share).flatmap(lambda drawn: odd if drawn == share else good)


@st.composite
def mutilated(draw: st.DrawFn, contents: st.SearchStrategy[bytes]) -> bytes:
    """Bytes of which some pieces are replaced, doubled or cut out."""
    content = draw(contents)
    for _ in range(draw(st.integers(1, 3))):
        begin = draw(st.integers(0, len(content)))
        end = min(len(content), begin + draw(st.integers(0, 8)))
        piece = draw(st.one_of(st.just(b""), st.just(content[begin:end] * 2), st.binary(min_size=1, max_size=4)))
        content = content[:begin] + piece + content[end:]
    return content


def damaged(contents: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """The bytes, at times mutilated, at times others."""
    return mostly(mostly(contents, mutilated(contents), 3), st.binary(max_size=60), 20)


@st.composite
def sizes(draw: st.DrawFn, spec: TensorSpec) -> list[int]:
    """A shape that the model takes."""
    if spec.shape is None:
        return draw(st.lists(st.integers(0, 3), max_size=3))
    return [draw(st.integers(0, 3)) if size == ANY else size for size in spec.shape]


def elements(datatype: str) -> st.SearchStrategy[Any]:
    """A value of JSON that is of this type."""
    if datatype == BYTES:
        return st.text(max_size=4)
    if datatype == "BOOL":
        return st.booleans()
    dtype = DATATYPES[datatype].dtype
    if dtype.kind == "f":
        return st.floats(width=32, allow_nan=False, allow_infinity=False) | st.integers(-(1 << 20), 1 << 20)
    limits = np.iinfo(dtype)
    return st.integers(int(limits.min), int(limits.max))


@st.composite
def nested(draw: st.DrawFn, datatype: str, shape: list[int]) -> Any:
    """Values nested as the shape is, with odd ones among them at times."""
    if not shape:
        return draw(mostly(elements(datatype), LOOKALIKES | ANYTHING, 16))
    return [draw(nested(datatype, shape[1:])) for _ in range(shape[0])]


def sent_as(spec: TensorSpec) -> st.SearchStrategy[str]:
    """The datatype that a request names: the model's, at times another one, or none that there is."""
    others = FLOATS if spec.datatype in FLOATS else [*DATATYPES, "FP8", ""]
    return mostly(st.just(spec.datatype), st.sampled_from(others), 4)


@st.composite
def raw(draw: st.DrawFn, datatype: str, count: int) -> bytes:
    """So many elements as the binary extension has them."""
    if DATATYPES.get(datatype, DATATYPES[BYTES]).size == 0:
        texts = [draw(st.binary(max_size=4)) for _ in range(count)]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    size = count * DATATYPES[datatype].size
    return draw(st.binary(min_size=size, max_size=size))


@st.composite
def v2_inputs(draw: st.DrawFn, spec: TensorSpec) -> tuple[dict[str, Any], bytes]:
    """One input in JSON, and its binary data."""
    shape = draw(sizes(spec))
    datatype = draw(sent_as(spec))
    made: dict[str, Any] = {"name": draw(mostly(st.just(spec.name), NAMES, 16)), "datatype": datatype, "shape": shape}
    blob = b""
    if draw(st.booleans()):
        flat = draw(nested(spec.datatype, [int(np.prod(shape))]))
        made["data"] = draw(mostly(st.just(flat), nested(spec.datatype, shape), 3))
    else:
        blob = draw(raw(datatype, int(np.prod(shape))))
        size = draw(mostly(st.just(len(blob)), st.integers(-1, 1 << 40)))
        made["parameters"] = {"binary_data_size": size}
    if draw(mostly(st.just(False), st.just(True))):
        made[draw(st.sampled_from(["shape", "data", "parameters", "datatype", "name"]))] = draw(ANYTHING)
    return made, blob


@st.composite
def v2_messages(draw: st.DrawFn) -> Message:
    """For `…/infer`."""
    spec = draw(SPECS)
    one = st.lists(v2_inputs(spec), min_size=1, max_size=1)
    given = draw(mostly(one, st.lists(v2_inputs(spec), max_size=2), 10))
    request: dict[str, Any] = {"inputs": [made for made, _ in given]}
    request |= draw(
        st.fixed_dictionaries(
            {},
            optional={
                "id": mostly(st.text(max_size=4), ANYTHING),
                "outputs": mostly(st.just([{"name": OUTPUT}]), ANYTHING),
                "parameters": mostly(st.just({"binary_data_output": True}), ANYTHING),
                "more": ANYTHING,
            },
        )
    )
    head = json.dumps(request, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    blob = b"".join(blob for _, blob in given)
    body = draw(damaged(st.just(head + blob)))
    length = draw(mostly(st.just(len(head)), st.none() | st.integers(-1, 1 << 20)))
    return Message(spec, body, length if blob or draw(st.booleans()) else None)


@st.composite
def rows(draw: st.DrawFn, spec: TensorSpec) -> Any:
    """A value of JSON for the input, without its type: by itself, or by its name."""
    value = draw(nested(spec.datatype, draw(sizes(spec))))
    if spec.datatype == BYTES and isinstance(value, str) and draw(st.booleans()):
        value = {"b64": base64.b64encode(value.encode("utf-8", "surrogatepass")).decode()}
    return draw(mostly(st.just(value), ANYTHING, 16))


@st.composite
def v1_messages(draw: st.DrawFn) -> Message:
    """For `:predict`."""
    spec = draw(SPECS)
    value = draw(rows(spec))
    by_name = [{spec.name: item} for item in value] if isinstance(value, list) else value
    request = draw(
        st.sampled_from(
            [{"instances": value}, {"instances": by_name}, {"inputs": value}, {"inputs": {spec.name: value}}]
        )
    )
    extra = draw(st.dictionaries(st.sampled_from(["signature_name", "instances", "inputs"]), ANYTHING, max_size=1))
    whole = draw(mostly(st.just(request), st.just({**request, **extra})))
    return Message(spec, draw(_encoded(whole)))


@st.composite
def invocations_messages(draw: st.DrawFn) -> Message:
    """For `/invocations`, in JSON."""
    spec = draw(SPECS)
    value = draw(rows(spec))
    frame = [[item] for item in value] if isinstance(value, list) else value
    request = draw(
        st.sampled_from(
            [
                {"inputs": value},
                {"instances": value},
                {"inputs": {spec.name: value}},
                {"dataframe_split": {"data": frame}},
                {"dataframe_split": {"columns": [spec.name], "data": frame}},
                {"dataframe_records": [{spec.name: item} for item in value] if isinstance(value, list) else value},
            ]
        )
    )
    extra = draw(st.dictionaries(st.sampled_from(["params", "instances", "inputs"]), ANYTHING, max_size=1))
    whole = draw(mostly(st.just(request), st.just({**request, **extra})))
    return Message(spec, draw(_encoded(whole)))


@st.composite
def generate_messages(draw: st.DrawFn) -> Message:
    """For `…/generate`."""
    spec = draw(SPECS)
    value = draw(rows(spec))
    request = draw(
        st.sampled_from([{spec.name: value}, {"parameters": {spec.name: value}}, {spec.name: value, "parameters": {}}])
    )
    more = draw(mostly(st.just({}), st.dictionaries(NAMES, ANYTHING, max_size=2)))
    return Message(spec, draw(_encoded({**more, **request})))


ATTRIBUTES = {"specversion": "1.0", "id": "1", "source": "/a", "type": "t"}


@st.composite
def events(draw: st.DrawFn) -> bytes:
    """A structured CloudEvent."""
    names = st.sampled_from([*ATTRIBUTES, "time", "subject", "datacontenttype", "extension"]) | st.text(max_size=4)
    odd = draw(mostly(st.just({}), st.dictionaries(names, mostly(st.text(max_size=5), ANYTHING), max_size=2), 2))
    key = st.sampled_from(["data", "data_base64"])
    data = draw(st.dictionaries(key, ANYTHING | st.sampled_from(["", "eA==", "eA"]), max_size=1))
    return draw(_encoded({**ATTRIBUTES, **odd, **data}))


@st.composite
def grpc_messages(draw: st.DrawFn) -> Message:
    """A ModelInferRequest."""
    spec = draw(SPECS)
    shape = draw(sizes(spec))
    datatype = draw(sent_as(spec))
    made = ModelInferRequest(id=draw(st.text(st.characters(codec="utf-8"), max_size=3)))
    one = made.inputs.add(name=draw(st.sampled_from([spec.name] * 9 + ["z"])), datatype=datatype, shape=shape)
    field = CONTENTS.get(draw(mostly(st.just(datatype), st.sampled_from(sorted(CONTENTS)))))
    if field is None or draw(st.booleans()):
        made.raw_input_contents.append(draw(raw(datatype, int(np.prod(shape)))))
    if field is not None and (not made.raw_input_contents or draw(mostly(st.just(False), st.just(True)))):
        drawn = st.lists(_of_field(field), min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))
        getattr(one.contents, field).extend(draw(mostly(drawn, st.lists(_of_field(field), max_size=3))))
    return Message(spec, draw(damaged(st.just(made.SerializeToString()))))


def _of_field(field: str) -> st.SearchStrategy[Any]:
    """A value that protobuf takes there."""
    if field in ("int_contents", "int64_contents"):
        return mostly(st.integers(-128, 127), st.integers(-(1 << 31), (1 << 31) - 1))
    if field in ("uint_contents", "uint64_contents"):
        return mostly(st.integers(0, 255), st.integers(0, (1 << 32) - 1))
    if field == "bool_contents":
        return st.booleans()
    return st.binary(max_size=4) if field == "bytes_contents" else st.floats(width=32)


def _encoded(value: Any) -> st.SearchStrategy[bytes]:
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return damaged(st.just(text))
