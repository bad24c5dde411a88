"""ONNX models in ONNX Runtime, on the CPU.

The runtime gets the model as bytes, and likewise the external data in other files of its folder. So it runs exactly the
verified bytes, and never opens a path that a model names.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from serving.engines.base.datatypes import BYTES, Tensor
from serving.engines.base.engine import ANY, BaseEngine, Cancellation, EngineOptions, Signature, TensorSpec
from serving.engines.base.errors import Cancelled, InferenceFailed, InputRefused, LoadFailed, short_reason
from serving.engines.base.tensors import as_text
from serving.engines.onnx.file import ExternalData, external_data, has_control_flow
from serving.engines.onnx.library import onnxruntime

if TYPE_CHECKING:
    from serving.storage.base.artifact import Artifact

PLATFORM: Final = "onnx_onnxv1"  # as the Open Inference Protocol names it
MODEL_FILE: Final = "model.onnx"
SUFFIX: Final = ".onnx"
MAX_SEARCHED: Final = 1 << 20  # bytes; larger models do not run in microseconds
_PROVIDERS: Final = ("CPUExecutionProvider",)
_DATATYPES: Final = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8", "tensor(uint16)": "UINT16", "tensor(uint32)": "UINT32", "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8", "tensor(int16)": "INT16", "tensor(int32)": "INT32", "tensor(int64)": "INT64",
    "tensor(float16)": "FP16", "tensor(float)": "FP32", "tensor(double)": "FP64",
    "tensor(string)": BYTES,
}  # fmt: skip
_STATE: Final = onnxruntime.capi.onnxruntime_pybind11_state
_REFUSALS: Final = (_STATE.InvalidArgument,)
"""Errors of the runtime for inputs that it or an operator rejects, such as an index out of bounds."""


def load(artifact: Artifact, options: EngineOptions) -> OnnxEngine:
    """Load the artifact's only `*.onnx` file, or `model.onnx`. Raises LoadFailed, StorageError."""
    name = _model_file(artifact)
    model = artifact.read(name)
    settings = _settings(options)
    # The runtime refers to these buffers until the session is created.
    buffers = _add_external_data(settings, artifact, name, external_data(model))
    try:
        session = onnxruntime.InferenceSession(model, settings, providers=list(_PROVIDERS))
    except Exception as error:  # the runtime's errors have no other common base class
        raise LoadFailed(f"ONNX Runtime cannot load {name}: {short_reason(error)}") from error
    finally:
        buffers.clear()
    _release_model_file(session)
    bounded = len(model) <= MAX_SEARCHED and not has_control_flow(model)
    return OnnxEngine(session, bounded)


class OnnxEngine(BaseEngine):
    """A session of ONNX Runtime. Outputs that are not tensors (sequences, maps) are left out.

    `bounded` is whether the graph is known to have no operators with subgraphs.
    """

    def __init__(self, session: Any, bounded: bool) -> None:
        super().__init__(_signature(session), bounded)
        self._session = session
        self._texts = frozenset(arg.name for arg in session.get_inputs() if arg.type == "tensor(string)")

    def infer(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Sequence[Tensor]:
        """Run the graph once. Raises InputRefused, InferenceFailed, Cancelled."""
        if self._texts:
            inputs = {name: as_text(tensor) if name in self._texts else tensor for name, tensor in inputs.items()}
        try:
            return self._run(inputs, outputs, cancellation)
        except _REFUSALS as error:
            raise InputRefused(str(error)) from error
        except Exception as error:  # as in `load`
            if cancellation is not None and cancellation.cancelled:
                raise Cancelled("the inference was cancelled") from error
            raise InferenceFailed(str(error)) from error

    def close(self) -> None:
        """Free the session."""
        self._session = None

    def _run(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None
    ) -> Sequence[Tensor]:
        run = None
        if cancellation is not None:
            run = onnxruntime.RunOptions()
            cancellation.on_cancel(partial(setattr, run, "terminate", True))  # checked between two operators
        results: Sequence[Tensor] = self._session.run(outputs, inputs, run)
        return results


def _model_file(artifact: Artifact) -> str:
    names = artifact.names()
    if artifact.content is not None:
        return names[0]  # a download may have any name
    found = [name for name in names if name.lower().endswith(SUFFIX)]
    if MODEL_FILE in found:
        return MODEL_FILE
    if len(found) != 1:
        raise LoadFailed(f"{artifact.uri} has {len(found)} {SUFFIX} files: name the one to serve {MODEL_FILE}")
    return found[0]


def _release_model_file(session: Any) -> None:
    """Drop the session's reference to the model file, so that its bytes are freed when the load ends.

    The runtime has its own copy of the weights. The session keeps the file only to create itself again with other
    execution providers after a failed inference (its "fallback"), and here are no others.
    """
    session.disable_fallback()
    session._model_bytes = None  # the runtime has no public way


def _settings(options: EngineOptions) -> Any:
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads
    settings.inter_op_num_threads = 1  # requests run in parallel, not the operators of one
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")  # waiting threads must not use the CPU
    # The runtime does not check models in its own format (ORT), so bytes are never interpreted as one.
    settings.add_session_config_entry("session.load_model_format", "ONNX")
    return settings


def _add_external_data(
    settings: Any, artifact: Artifact, model_file: str, tensors: Sequence[ExternalData]
) -> dict[str, bytes]:
    """Pass the external data of the model to the runtime. Raises LoadFailed for a file outside of the folder."""
    if tensors and artifact.content is not None:
        raise LoadFailed(f"{artifact.uri} has external data in other files: set storageUri to the folder")
    files: dict[str, bytes] = {}
    for tensor in tensors:
        if tensor.location not in files:
            files[tensor.location] = artifact.read(_external_file(artifact, model_file, tensor))
        end = tensor.offset + (tensor.length or 0)
        if tensor.offset < 0 or end > len(files[tensor.location]):
            raise LoadFailed(f"tensor {tensor.tensor!r} is past the end of {tensor.location!r}: the file is truncated")
    if files:
        settings.add_external_initializers_from_files_in_memory(
            list(files), list(files.values()), [len(content) for content in files.values()]
        )
    return files


def _external_file(artifact: Artifact, model_file: str, tensor: ExternalData) -> str:
    name = posixpath.normpath(posixpath.join(posixpath.dirname(model_file), tensor.location))
    if tensor.location.startswith("/") or "\\" in tensor.location or name not in artifact.names():
        raise LoadFailed(
            f"tensor {tensor.tensor!r} has its data in {tensor.location!r}, which is not a file of the model's folder"
        )
    return name


def _signature(session: Any) -> Signature:
    inputs = []
    for arg in session.get_inputs():
        if arg.type not in _DATATYPES:
            raise LoadFailed(f"input {arg.name!r} has type {arg.type}: the inference protocol has no such type")
        inputs.append(_spec(arg))
    outputs = [_spec(arg) for arg in session.get_outputs() if arg.type in _DATATYPES]
    if not outputs:
        raise LoadFailed("the model has no tensor as output: export it without ZipMap")
    return Signature(PLATFORM, tuple(inputs), tuple(outputs))


def _spec(arg: Any) -> TensorSpec:
    # The runtime reports [] for a scalar and for an unknown rank.
    shape = tuple(size if isinstance(size, int) and size >= 0 else ANY for size in arg.shape) or None
    return TensorSpec(arg.name, _DATATYPES[arg.type], shape)
