"""The engine for ONNX models: ONNX Runtime on the CPU.

ONNX Runtime gets bytes, never a path: those that storage has verified, for the model and for the other files in which
it keeps tensors. Importing this module (and then `onnxruntime`) starts no thread, so that a process may be forked after.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from serving.engines.base import Tensor, TensorSpec
from serving.engines.errors import BadInput, EngineError
from serving.engines.onnx_file import external_files
from serving.engines.tensors import DATATYPES, fit
from serving.storage.artifact import Artifact

if TYPE_CHECKING:
    import onnxruntime

# ONNX Runtime ≥ 1.29 starts a telemetry thread when it is imported, unless told not to before.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

log = logging.getLogger(__name__)

PLATFORM: Final = "onnxruntime_onnx"
MODEL_FILE: Final = "model.onnx"
LOG_ERRORS: Final = 3  # ONNX Runtime's severity; it would warn of each unused initializer
LONGEST_REASON: Final = 300  # characters of ONNX Runtime's words in ours

_DATATYPES: Final = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float": "FP32",
    "double": "FP64",
    "string": "BYTES",
}
_PREFIX: Final = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
_SOURCE_PLACE: Final = re.compile(r"\S*\.(?:cc|h|cpp|hpp):\d+\s*")  # paths of the machine that built ONNX Runtime


class OnnxEngine:
    """A loaded ONNX model. Outputs that are no tensors (maps, sequences) cannot be sent, and are left out."""

    platform = PLATFORM

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        self.inputs: tuple[TensorSpec, ...] = tuple(_input_spec(node) for node in session.get_inputs())
        self.outputs: tuple[TensorSpec, ...] = tuple(_specs(session.get_outputs()))
        if not self.outputs:
            raise EngineError("the model has no output that is a tensor: export it without ZipMap")

    def infer(self, inputs: Mapping[str, Tensor], outputs: Sequence[str]) -> list[Tensor]:
        """See `Engine.infer`."""
        names = self._wanted(outputs)
        feed = self._feed(inputs)
        try:
            results: list[Tensor] = self._session.run(names, feed)
        except Exception as error:  # ONNX Runtime's errors have no base of their own
            kind = BadInput if type(error).__name__ == "InvalidArgument" else EngineError
            raise kind(f"the model failed: {_reason(error)}") from error
        return results

    def warm_up(self) -> None:
        """Compute once with zeros, any size taken as 1; a model that refuses those is warmed by its first request."""
        zeros = {spec.name: _zeros(spec) for spec in self.inputs}
        try:
            self.infer(zeros, ())
        except EngineError as error:
            log.info("no warm-up: %s", error)

    def _wanted(self, outputs: Sequence[str]) -> list[str]:
        known = [spec.name for spec in self.outputs]
        if unknown := [name for name in outputs if name not in known]:
            raise BadInput(f"output {unknown[0][:80]!r} is not known: the model gives {', '.join(known)}")
        return list(outputs) or known

    def _feed(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        known = [spec.name for spec in self.inputs]
        takes = f"the model takes {', '.join(known) or 'none'}"
        if unknown := [name for name in inputs if name not in known]:
            raise BadInput(f"input {unknown[0][:80]!r} is not known: {takes}")
        if missing := [name for name in known if name not in inputs]:
            raise BadInput(f"input {missing[0]!r} is missing: {takes}")
        return {spec.name: fit(spec, inputs[spec.name]) for spec in self.inputs}


def load(artifact: Artifact, threads: int) -> OnnxEngine:
    """Load the model of an artifact, to compute on `threads` threads. Raises EngineError, StorageError."""
    name, content = _model_bytes(artifact)
    others = _other_files(artifact, name, external_files(content))
    options = _options(threads)
    if others:
        sizes = [len(part) for part in others.values()]
        options.add_external_initializers_from_files_in_memory(list(others), list(others.values()), sizes)
    # `others` lives until the session is made: ONNX Runtime keeps only the address of the bytes.
    return OnnxEngine(_session(content, options))


def _model_bytes(artifact: Artifact) -> tuple[str, bytes]:
    if artifact.content is not None:
        return artifact.path.name, artifact.content
    names = [name for name in artifact.names() if name.endswith(".onnx")]
    if MODEL_FILE in names:
        return MODEL_FILE, artifact.read(MODEL_FILE)
    if len(names) == 1:
        return names[0], artifact.read(names[0])
    raise EngineError(f"the folder has {len(names)} *.onnx files: name the one to serve {MODEL_FILE}")


def _other_files(artifact: Artifact, model: str, locations: frozenset[str]) -> dict[str, bytes]:
    """The bytes of the files in which the model keeps tensors, by the name that ONNX Runtime looks for."""
    if locations and artifact.content is not None:
        raise EngineError("the model keeps tensors in other files: deploy its folder instead of the one file")
    files = {}
    for location in sorted(locations):
        path = PurePosixPath(location)
        if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in location:
            raise EngineError(f"the model keeps tensors in {location[:80]!r}, outside of its folder: export it again")
        files[str(path)] = artifact.read(str(PurePosixPath(model).parent / path))
    return files


def _options(threads: int) -> onnxruntime.SessionOptions:
    options = _runtime().SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = LOG_ERRORS
    # Threads that spin between requests would cost a core when idle.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    # Its own binary format (ORT) is not checked as it is loaded; bytes that look like it are not to be taken for it.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    return options


def _session(content: bytes, options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
    try:
        return _runtime().InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's errors have no base of their own
        raise EngineError(f"the model is no readable ONNX model: {_reason(error)}") from error


def _runtime() -> Any:
    # Imported late: what only asks for the engine's name need not pay for it.
    try:
        import onnxruntime
    except ImportError as error:
        raise EngineError("ONNX models need ONNX Runtime: pip install 'knodel[onnx]'") from error
    return onnxruntime


def _specs(nodes: Sequence[Any]) -> list[TensorSpec]:
    return [_spec(node, datatype) for node in nodes if (datatype := _datatype(node.type))]


def _input_spec(node: Any) -> TensorSpec:
    datatype = _datatype(node.type)
    if datatype is None:
        raise EngineError(f"input {node.name!r} has type {node.type}, which the protocol cannot carry")
    return _spec(node, datatype)


def _spec(node: Any, datatype: str) -> TensorSpec:
    return TensorSpec(node.name, datatype, tuple(size if isinstance(size, int) else -1 for size in node.shape))


def _datatype(onnx_type: str) -> str | None:
    return (
        _DATATYPES.get(onnx_type.removeprefix("tensor(").removesuffix(")")) if onnx_type.startswith("tensor(") else None
    )


def _zeros(spec: TensorSpec) -> Tensor:
    shape = tuple(1 if size < 0 else size for size in spec.shape)
    if spec.datatype == "BYTES":
        return np.full(shape, "", dtype=object)
    return np.zeros(shape, dtype=DATATYPES[spec.datatype])


def _reason(error: Exception) -> str:
    text = _PREFIX.sub("", " ".join(str(error).split()))
    return _SOURCE_PLACE.sub("", text)[:LONGEST_REASON].strip().removesuffix(".") or type(error).__name__
