"""Read the tensors of a PaddlePaddle program before it runs, and refuse operators that do more than compute.

A predictor reports types and shapes only after its first run, which needs them. There are two file formats:

    .json       since release 3: blocks of operators, whose names begin with the number of their dialect (`1.data`)
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
"""The prefix of names. No release writes the long names of dialects (`pd_op.`), so they are refused."""
_JSON_TYPES: Final = {
    "t_bool": "BOOL", "t_ui8": "UINT8", "t_i8": "INT8", "t_i32": "INT32", "t_i64": "INT64",
    "t_f16": "FP16", "t_f32": "FP32", "t_f64": "FP64",
}  # fmt: skip
_PROTOBUF_TYPES: Final = {name: name for name in _JSON_TYPES.values()}
"""The types that the library can copy in and out."""
_UNSAFE: Final = frozenset({
    "save", "save_combine", "load", "load_combine", "read_file", "py_func", "pylayer", "run_program",
    "send", "recv", "send_and_recv", "listen_and_serv", "recv_save", "send_barrier", "fetch_barrier",
    "gen_nccl_id", "gen_bkcl_id", "c_gen_nccl_id", "c_gen_bkcl_id", "checkpoint_notify", "heter_listen_and_serv",
    "tensorrt_engine", "cinn_jit_kernel", "lite_engine", "nnadapter_engine", "onnxruntime_engine", "dlnne_engine",
})  # fmt: skip
"""Operators for files, the network and Python, and those that run another engine, which may have its own."""


@dataclass(frozen=True, slots=True)
class Program:
    """The inputs and outputs of a program by name, in order, and the names of all its operators."""

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    operators: frozenset[str]

    def refuse_unsafe_operators(self) -> None:
        """Raise LoadFailed for operators that use files, the network or Python."""
        found = sorted(self.operators & _UNSAFE)
        if found:
            raise LoadFailed(
                f"the program has operators that use files, the network or Python ({', '.join(found)}): "
                f"save it without them, or {OWN_SERVER}"
            )


def files_of(artifact: Artifact) -> tuple[str, str]:
    """Return the file names of the program and of its parameters. Raises LoadFailed, StorageError."""
    parameters = only_file(artifact, (PARAMETERS,))
    stem = parameters[: -len(PARAMETERS)]  # in any case
    names = artifact.names()
    for form in (JSON, PROTOBUF):
        if stem + form in names:
            return stem + form, parameters
    raise LoadFailed(f"{artifact.uri} has neither {stem}{JSON} nor {stem}{PROTOBUF} beside its parameters")


def program_of(name: str, content: bytes, description: Callable[[bytes], Any]) -> Program:
    """Read the program of the file `name`; `description` is the library's `ProgramDesc`. Raises LoadFailed."""
    try:
        return _of_json(content) if name.endswith(JSON) else _of_protobuf(description(content))
    except LoadFailed:
        raise
    except Exception as error:  # the library's errors have no common base class
        raise LoadFailed(f"{name} is not a PaddlePaddle program, or it is damaged") from error


def _of_json(content: bytes) -> Program:
    program = msgspec.json.decode(content)["program"]
    names: set[str] = set()
    inputs: dict[str, TensorSpec] = {}
    outputs: dict[str, TensorSpec] = {}
    for operator in _operators(program):
        kind = _without_dialect(operator["#"])
        names.add(kind.rstrip("_"))  # the suffix of an operator that works in place
        if kind in _INPUTS or kind == _OUTPUT:
            name = next(item["AT"]["D"] for item in operator["A"] if item["N"] == "name")
            element, shape = operator["O"][0]["TT"]["D"][:2]
            spec = _spec(name, _without_dialect(element["#"]), _JSON_TYPES, shape)
            (outputs if kind == _OUTPUT else inputs)[name] = spec
    return Program(inputs, outputs, frozenset(names))


def _without_dialect(name: str) -> str:
    """Return a name without the number of its dialect. Raises ValueError for the name of a dialect."""
    kind = _DIALECT.sub("", name)
    if "." in kind:
        raise ValueError(f"{name!r} does not begin with the number of a dialect")
    return kind


def _operators(node: Any) -> Iterator[Any]:
    """Yield the operators of a program and of its nested programs."""
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
