"""TensorFlow SavedModels, on the CPU: one signature of the model, as a function.

All models of a process share TensorFlow's thread pool, which is created with the options of the first.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from serving.engines.base.datatypes import BF16, BYTES, Tensor
from serving.engines.base.engine import ANY, BaseEngine, Cancellation, EngineOptions, Signature, TensorSpec
from serving.engines.base.errors import MAX_REASON, Cancelled, InferenceFailed, InputRefused, LoadFailed
from serving.engines.base.folder import ModelFolder, only_file
from serving.engines.tensorflow.graph import refuse_unsafe_operators
from serving.engines.tensorflow.library import CancellationManager, is_stateful, tensorflow

if TYPE_CHECKING:
    from serving.storage.base.artifact import Artifact

log = logging.getLogger(__name__)

PLATFORM: Final = "tensorflow_savedmodel"  # as the Open Inference Protocol names it
FILE: Final = "saved_model.pb"
SPLIT_FILE: Final = "saved_model.cpb"  # newer releases use it for models beyond 2 GB, and some read it first
SIGNATURE: Final = "serving_default"
_DATATYPES: Final = {
    "bool": "BOOL",
    "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64",
    "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64",
    "float16": "FP16", "bfloat16": BF16, "float32": "FP32", "float64": "FP64",
    "string": BYTES,
}  # fmt: skip
"""By TensorFlow's names."""


def load(artifact: Artifact, options: EngineOptions) -> TensorflowEngine:
    """Load the artifact's SavedModel. Raises LoadFailed, StorageError."""
    inside = posixpath.dirname(only_file(artifact, (FILE,)))
    if artifact.content is None and posixpath.join(inside, SPLIT_FILE) in artifact.names():
        raise LoadFailed(f"{artifact.uri} has a {SPLIT_FILE}: save the model as one {FILE}")
    _set_threads(options.threads)
    with ExitStack() as opened:
        # Without `allow_code` exactly the checked bytes must be loaded.
        folder = opened.enter_context(ModelFolder(artifact, FILE, copy=not options.allow_code))
        try:
            loaded = _loaded(folder.path / inside, options.allow_code)
        except LoadFailed:
            raise
        except Exception as error:  # the library raises errors of many types
            reason = folder.without_path(str(error))[:MAX_REASON]
            raise LoadFailed(f"TensorFlow cannot load {artifact.uri}: {reason}") from error
        function = _signature_of(loaded, artifact.uri, options.signature)
        # A graph without operators for files never reads its folder again.
        return TensorflowEngine(loaded, function, opened.pop_all() if options.allow_code else ExitStack())


class TensorflowEngine(BaseEngine):
    """A signature of a SavedModel; `loaded` owns the variables, and `close` closes `opened`.

    Outputs that the protocol has no type for (complex numbers) are left out. It is never `bounded`, because the CPU
    time of the calling thread does not include TensorFlow's own threads.
    """

    def __init__(self, loaded: Any, function: Any, opened: ExitStack) -> None:
        self._loaded = loaded
        self._function = function
        self._opened = opened
        specs = function.structured_input_signature[1]
        self._types = {name: spec.dtype for name, spec in specs.items()}
        inputs = tuple(_spec(name, spec) for name, spec in specs.items())
        outputs = tuple(
            _spec(name, spec) for name, spec in function.structured_outputs.items() if spec.dtype.name in _DATATYPES
        )  # fmt: skip
        if not outputs:
            raise LoadFailed("the signature has no output with a type of the inference protocol")
        super().__init__(Signature(PLATFORM, inputs, outputs))

    def infer(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Sequence[Tensor]:
        """Run the graph once. Raises InputRefused, InferenceFailed, Cancelled."""
        try:
            tensors = {name: tensorflow.constant(tensor, self._types[name]) for name, tensor in inputs.items()}
            results = self._run(tensors, cancellation)
            return [_to_array(results[name]) for name in outputs]
        except tensorflow.errors.InvalidArgumentError as error:
            raise InputRefused(str(error)) from error
        except Exception as error:  # as in `load`
            if cancellation is not None and cancellation.cancelled:
                raise Cancelled("the inference was cancelled") from error
            raise InferenceFailed(str(error)) from error

    def close(self) -> None:
        """Release function and variables."""
        self._opened.close()
        self._function = self._loaded = None

    def _run(self, tensors: Mapping[str, Any], cancellation: Cancellation | None) -> Any:
        if cancellation is None:
            return self._function(**tensors)
        manager = CancellationManager()
        cancellation.on_cancel(manager.start_cancel)  # checked between two operators
        return manager.get_cancelable_function(self._function)(**tensors)


def _set_threads(threads: int) -> None:
    settings = tensorflow.config.threading
    try:
        settings.set_intra_op_parallelism_threads(threads)
        settings.set_inter_op_parallelism_threads(threads)
    except RuntimeError:  # the pools are created once in a process
        log.info("threads=%d is ignored: another model has created TensorFlow's threads already", threads)


def _loaded(folder: Path, allow_code: bool) -> Any:
    if not allow_code:
        refuse_unsafe_operators(tensorflow.__internal__.saved_model.parse_saved_model(str(folder)), is_stateful)
    return tensorflow.saved_model.load(str(folder))


def _signature_of(loaded: Any, uri: str, name: str) -> Any:
    found = dict(loaded.signatures)
    wanted = name or (SIGNATURE if SIGNATURE in found or len(found) != 1 else next(iter(found)))
    if wanted not in found:
        raise LoadFailed(f"{uri} has no signature {wanted!r}: name one of {', '.join(map(repr, found)) or 'none'}")
    return found[wanted]


def _spec(name: str, spec: Any) -> TensorSpec:
    if spec.dtype.name not in _DATATYPES:
        raise LoadFailed(f"tensor {name!r} has type {spec.dtype.name}: the inference protocol has no such type")
    shape = None if spec.shape.rank is None else tuple(ANY if size is None else size for size in spec.shape)
    return TensorSpec(name, _DATATYPES[spec.dtype.name], shape)


def _to_array(tensor: Any) -> Tensor:
    """Convert a tensor to an array, with BF16 as FP32 and strings as objects.

    A scalar string needs the conversion too: TensorFlow returns it as `bytes`.
    """
    if tensor.dtype == tensorflow.bfloat16:
        tensor = tensorflow.cast(tensor, tensorflow.float32)
    return np.asarray(tensor.numpy(), dtype=object if tensor.dtype == tensorflow.string else None)
