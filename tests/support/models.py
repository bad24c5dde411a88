"""Tiny models. ONNX is encoded by hand (protobuf wire format, field numbers of onnx.proto3): no onnx package needed."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

FLOAT, INT64, STRING, FLOAT16, DOUBLE, BOOL = 1, 7, 8, 10, 11, 9  # TensorProto.DataType
SLOW_SIZE = 640  # rows and columns of the matrices that `slow` multiplies
SLOW_PRODUCTS = 24
FLOWERS = b"""
import itertools, time

class Model:
    inputs = [{"name": "input-0", "datatype": "FP64", "shape": [-1, 4]}]
    outputs = [{"name": "output-0", "datatype": "FP64", "shape": [-1]}]
    thread_safe = True

    def predict(self, flowers):
        time.sleep(%f)
        return 0 * flowers[:, 0]
"""

Dim = int | str


def varint(value: int) -> bytes:
    """An unsigned varint (negative numbers as 64 bits in two's complement)."""
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def number(field: int, value: int) -> bytes:
    """A varint field."""
    return varint(field << 3) + varint(value)


def chunk(field: int, content: bytes | str) -> bytes:
    """A length-delimited field: bytes, text or a nested message."""
    raw = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(raw)) + raw


def tensor(name: str, datatype: int, shape: Sequence[int], raw: bytes) -> bytes:
    """A TensorProto with its bytes inside."""
    dims = b"".join(number(1, size) for size in shape)
    return dims + number(2, datatype) + chunk(8, name) + chunk(9, raw)


def floats(name: str, values: Sequence[float], shape: Sequence[int] = ()) -> bytes:
    """An FP32 TensorProto."""
    return tensor(name, FLOAT, shape, struct.pack(f"<{len(values)}f", *values))


def integers(name: str, values: Sequence[int]) -> bytes:
    """An INT64 TensorProto of one dimension."""
    return tensor(name, INT64, (len(values),), struct.pack(f"<{len(values)}q", *values))


def external(name: str, datatype: int, shape: Sequence[int], location: str) -> bytes:
    """A TensorProto whose bytes lie in the file `location`."""
    dims = b"".join(number(1, size) for size in shape)
    entry = chunk(1, "location") + chunk(2, location)
    return dims + number(2, datatype) + chunk(8, name) + chunk(13, entry) + number(14, 1)


def value(name: str, datatype: int, shape: Sequence[Dim]) -> bytes:
    """A ValueInfoProto: an input or output; a named dimension is dynamic."""
    dims = b"".join(chunk(1, number(1, dim) if isinstance(dim, int) else chunk(2, dim)) for dim in shape)
    return chunk(1, name) + chunk(2, chunk(1, number(1, datatype) + chunk(2, dims)))


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str], *attributes: bytes) -> bytes:
    """A NodeProto."""
    names = b"".join(chunk(1, name) for name in inputs) + b"".join(chunk(2, name) for name in outputs)
    return names + chunk(4, operator) + b"".join(chunk(5, attribute) for attribute in attributes)


def whole(name: str, given: int) -> bytes:
    """An AttributeProto of type INT."""
    return chunk(1, name) + number(3, given) + number(20, 2)


def model(
    nodes: Sequence[bytes], inputs: Sequence[bytes], outputs: Sequence[bytes], constants: Sequence[bytes] = ()
) -> bytes:
    """A ModelProto (IR 8, opset 17)."""
    graph = b"".join(chunk(1, item) for item in nodes) + chunk(2, "graph")
    graph += b"".join(chunk(5, item) for item in constants)
    graph += b"".join(chunk(11, item) for item in inputs) + b"".join(chunk(12, item) for item in outputs)
    return number(1, 8) + chunk(2, "knodel-tests") + chunk(7, graph) + chunk(8, chunk(1, "") + number(2, 17))


def times(factor: float) -> bytes:
    """FP32 x [-1] → y = x · factor."""
    return model(
        [node("Mul", ["x", "factor"], ["y"])],
        [value("x", FLOAT, ["n"])],
        [value("y", FLOAT, ["n"])],
        [floats("factor", [factor])],
    )


def double() -> bytes:
    """FP32 x [-1] → y = 2x."""
    return times(2)


def triple() -> bytes:
    """FP32 x [-1] → y = 3x."""
    return times(3)


def slow() -> bytes:
    """As `double`, but 100 to 200 ms of one core for each call: products of matrices made from x, times zero."""
    names = ["spread", *(f"product{i}" for i in range(SLOW_PRODUCTS))]
    products = [node("MatMul", [before, "spread"], [after]) for before, after in pairwise(names)]
    return model(
        [
            node("ReduceSum", ["x"], ["sum"], whole("keepdims", 0)),
            node("Mul", ["sum", "zero"], ["nothing"]),
            node("Expand", ["nothing", "square"], ["spread"]),
            *products,
            node("ReduceSum", [names[-1]], ["rest"], whole("keepdims", 0)),
            node("Mul", ["x", "two"], ["doubled"]),
            node("Add", ["doubled", "rest"], ["y"]),
        ],
        [value("x", FLOAT, ["n"])],
        [value("y", FLOAT, ["n"])],
        [floats("zero", [0]), floats("two", [2]), integers("square", [SLOW_SIZE, SLOW_SIZE])],
    )


def text() -> bytes:
    """BYTES x [-1] → y, the same."""
    return model([node("Identity", ["x"], ["y"])], [value("x", STRING, ["n"])], [value("y", STRING, ["n"])])


def half() -> bytes:
    """FP16 x [-1] → y = -x."""
    return model([node("Neg", ["x"], ["y"])], [value("x", FLOAT16, ["n"])], [value("y", FLOAT16, ["n"])])


def outside(location: str) -> bytes:
    """FP32 x [-1] → y = x · f, where f (one FP32 value) lies in the file `location`."""
    return model(
        [node("Mul", ["x", "factor"], ["y"])],
        [value("x", FLOAT, ["n"])],
        [value("y", FLOAT, ["n"])],
        [external("factor", FLOAT, (1,), location)],
    )


def truncated() -> bytes:
    """The first half of `double`."""
    whole_model = double()
    return whole_model[: len(whole_model) // 2]


def line() -> bytes:
    """A linear regression of scikit-learn, trained here: input-0 [-1, 1] → output-0 [-1] = 2 · input-0 + 1."""
    import skops.io
    from sklearn.linear_model import LinearRegression

    trained = LinearRegression().fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
    return bytes(skops.io.dumps(trained))


def code() -> bytes:
    """A model that is Python code: FP64 x [-1] → y = 4x."""
    return b"""
class Model:
    inputs = [{"name": "x", "datatype": "FP64", "shape": [-1]}]
    outputs = [{"name": "y", "datatype": "FP64", "shape": [-1]}]

    def predict(self, x):
        return 4 * x
"""


def flowers(seconds: float) -> bytes:
    """Code that tells all iris flowers, as `examples/training.py` does, to be of one kind, and takes so long for it."""
    return FLOWERS % seconds


def stuck() -> bytes:
    """As `brisk`, but a call for a flower longer than 50 takes a minute."""
    predict = b"    def predict(self, flowers):\n"
    hangs = (
        b"""%s        if flowers[0][0] > 50:
            time.sleep(60)
"""
        % predict
    )
    return flowers(0.01).replace(predict, hangs)


def mortal() -> bytes:
    """As `brisk`, but a call for a flower longer than 50 ends the process."""
    predict = b"    def predict(self, flowers):\n"
    dies = (
        b"""%s        if flowers[0][0] > 50:
            __import__("os")._exit(3)
"""
        % predict
    )
    return flowers(0.01).replace(predict, dies)


def flaky() -> bytes:
    """As `brisk`, but every fifth call fails."""
    predict = b"    def predict(self, flowers):\n"
    fails = (
        b"""    calls = itertools.count(1)

%s        if next(self.calls) %% 5 == 0:
            raise RuntimeError("every fifth fails")
"""
        % predict
    )
    return flowers(0.01).replace(predict, fails)


def chat(seed: int = 0) -> bytes:
    """A language model whose words are random; a grammar makes its answers exact."""
    from tests.support import small_gguf  # in the developers' environment only

    return small_gguf.content(seed=seed)


def chat_slow() -> bytes:
    """A language model that takes longer for each token."""
    from tests.support import small_gguf

    return small_gguf.content(width=1024, blocks=6)


def composed(step: int = 1) -> bytes:
    """A Ray Serve application of three deployments, one of them with many models; `/add` adds `step` twice."""
    text = Path(__file__).with_name("ray_app.py").read_text()
    return text.replace("return number + 1", f"return number + {step}").encode()


MODELS: Mapping[str, Callable[[], bytes]] = {
    "double": double,
    "triple": triple,
    "slow": slow,
    "text": text,
    "half": half,
    "truncated": truncated,
    "line": line,
    "code": code,
    "brisk": partial(flowers, 0.01),
    "lame": partial(flowers, 0.03),
    "sleepy": partial(flowers, 0.2),
    "flaky": flaky,
    "stuck": stuck,
    "mortal": mortal,
    "chat": chat,
    "chat-again": partial(chat, 1),
    "chat-slow": chat_slow,
    "composed": composed,
    "composed-again": partial(composed, 10),
}
SUFFIXES = {
    "line": ".skops",
    **dict.fromkeys(("chat", "chat-again", "chat-slow"), ".gguf"),
    **dict.fromkeys(
        ("code", "brisk", "lame", "sleepy", "flaky", "stuck", "mortal", "composed", "composed-again"), ".py"
    ),
}
"""Of the files that are no `.onnx`."""


def path_of(folder: Path, name: str) -> Path:
    """Where `write` puts the model."""
    return folder / f"{name}{SUFFIXES.get(name, '.onnx')}"


def write(folder: Path, name: str) -> Path:
    """Write the model `name` (a key of MODELS) into `folder`, whole or not at all; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path, fresh = path_of(folder, name), folder / f".{name}.fresh"
    fresh.write_bytes(MODELS[name]())
    fresh.replace(path)
    return path
