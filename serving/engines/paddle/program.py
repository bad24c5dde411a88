"""What must be known of a PaddlePaddle program before it runs: its tensors, and that it is no more than arithmetic.

A predictor does not tell types and shapes before its first run, and a first run needs them.

    .json       since release 3: blocks of operators, whose names have the number of their dialect in front (`1.data`)
    .pdmodel    before: a protocol buffer (`framework.proto`), read by the library
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from serving.engines.base.engine import ANY, TensorSpec
from serving.engines.base.errors import LoadFailed
from serving.engines.base.folder import only_file
from serving.engines.base.registry import OWN_SERVER

if TYPE_CHECKING:
    from serving.storage.base.artifact import Artifact

PARAMETERS: Final = ".pdiparams"
JSON: Final = ".json"
PROTOBUF: Final = ".pdmodel"
_INPUTS: Final = frozenset({"data", "feed"})
_OUTPUT: Final = "fetch"
_DIALECT: Final = re.compile(r"^\d+\.")
"""In front of names; the long names of dialects (`pd_op.`) are written by no release, and not taken here."""
_JSON_TYPES: Final = {
    "t_bool": "BOOL", "t_ui8": "UINT8", "t_i8": "INT8", "t_i32": "INT32", "t_i64": "INT64",
    "t_f16": "FP16", "t_f32": "FP32", "t_f64": "FP64",
}  # fmt: skip
_PROTOBUF_TYPES: Final = {name: name for name in _JSON_TYPES.values()}
"""What the library can copy in and out."""
_REACHES_OUT: Final = frozenset({
    "save", "save_combine", "load", "load_combine", "read_file", "py_func", "pylayer", "run_program",
    "send", "recv", "send_and_recv", "listen_and_serv", "recv_save", "send_barrier", "fetch_barrier",
    "gen_nccl_id", "gen_bkcl_id", "c_gen_nccl_id", "c_gen_bkcl_id", "checkpoint_notify", "heter_listen_and_serv",
    "tensorrt_engine", "cinn_jit_kernel", "lite_engine", "nnadapter_engine", "onnxruntime_engine", "dlnne_engine",
})  # fmt: skip
"""Operators for files, the network and Python, and those that hand over to an engine which has its own."""


@dataclass(frozen=True, slots=True)
class Program:
    """Inputs and outputs by name in their order, and the names of all operators."""

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    operators: frozenset[str]

    def refuse_what_reaches_out(self) -> None:
        """Raises LoadFailed for operators that use files, the network or Python."""
        found = sorted(self.operators & _REACHES_OUT)
        if found:
            raise LoadFailed(
                f"the program has operators that use files, the network or Python ({', '.join(found)}): "
                f"save it without them, or {OWN_SERVER}"
            )


def files_of(artifact: Artifact) -> tuple[str, str]:
    """The names of program and parameters. Raises LoadFailed, StorageError."""
    parameters = only_file(artifact, (PARAMETERS,))
    stem = parameters[: -len(PARAMETERS)]  # in whatever case
    names = artifact.names()
    for form in (JSON, PROTOBUF):
        if stem + form in names:
            return stem + form, parameters
    raise LoadFailed(f"{artifact.uri} has neither {stem}{JSON} nor {stem}{PROTOBUF} beside its parameters")


def program_of(name: str, content: bytes, description: Callable[[bytes], Any]) -> Program:
    """The program of the file `name`; `description` is the library's `ProgramDesc`. Raises LoadFailed."""
    try:
        return _of_json(content) if name.endswith(JSON) else _of_protobuf(description(content))
    except LoadFailed:
        raise
    except Exception as error:  # the library's have no common base
        raise LoadFailed(f"{name} is no program of PaddlePaddle: it is damaged or cut off") from error


def _of_json(content: bytes) -> Program:
    program = msgspec.json.decode(content)["program"]
    names: set[str] = set()
    inputs: dict[str, TensorSpec] = {}
    outputs: dict[str, TensorSpec] = {}
    for operator in _operators(program):
        kind = _short(operator["#"])
        names.add(kind.rstrip("_"))  # of one that works in place
        if kind in _INPUTS or kind == _OUTPUT:
            name = next(item["AT"]["D"] for item in operator["A"] if item["N"] == "name")
            element, shape = operator["O"][0]["TT"]["D"][:2]
            spec = _spec(name, _short(element["#"]), _JSON_TYPES, shape)
            (outputs if kind == _OUTPUT else inputs)[name] = spec
    return Program(inputs, outputs, frozenset(names))


def _short(name: str) -> str:
    """Without the number of its dialect. Raises ValueError when a dialect's name stands there."""
    kind = _DIALECT.sub("", name)
    if "." in kind:
        raise ValueError(f"{name!r} has no number of a dialect")
    return kind


def _operators(node: Any) -> Iterator[Any]:
    """Those of a program, with those of the programs within them."""
    for region in node.get("regions", ()):
        for block in region["blocks"]:
            for operator in block["ops"]:
                yield operator
                yield from _operators(operator)


def _of_protobuf(program: Any) -> Program:
    names: set[str] = set()
    inputs: dict[str, TensorSpec] = {}
    outputs: dict[str, TensorSpec] = {}
    for number in range(program.num_blocks()):
        block = program.block(number)
        for index in range(block.op_size()):
            operator = block.op(index)
            kind = operator.type()
            names.add(kind)
            if kind in _INPUTS or kind == _OUTPUT:
                (name,) = operator.input("X") if kind == _OUTPUT else operator.output("Out")
                tensor = block.find_var(name.encode())
                spec = _spec(name, tensor.dtype().name, _PROTOBUF_TYPES, tensor.shape())
                (outputs if kind == _OUTPUT else inputs)[name] = spec
    return Program(inputs, outputs, frozenset(names))


def _spec(name: str, kind: str, kinds: Mapping[str, str], shape: Sequence[int]) -> TensorSpec:
    if kind not in kinds:
        raise LoadFailed(f"tensor {name!r} is {kind.removeprefix('t_')}, which cannot be served: cast it")
    return TensorSpec(name, kinds[kind], tuple(ANY if size < 0 else size for size in shape))
