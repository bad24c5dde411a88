"""Models that are Python code: a class in `model.py`. The registry requires that the format is named, and allowed.

    class Model:
        inputs = [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]      # optional, as are outputs
        def load(self, folder): ...                                         # optional; so is the parameter, a Path
        def predict(self, x): ...

Arrays are NumPy's. A class without declarations has one input and one output of FP64, `input-0` and `output-0`.
`serving.engines.python.stages` describes the methods, `serving.engines.python.tensors` their results. If the code
raises `serving.engines.base.errors.InputRefused`, the caller gets 400; any other exception is the model's fault (500).

Plain methods are called by one thread at a time, unless the class has `thread_safe = True`. A generator runs to its end
before the next call, unless its reader stalls and other requests wait (`ExclusiveSlot`). Async methods run concurrently
on one event loop, up to the concurrency limit of the server.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from clusters.base.sizes import format_size
from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import BaseEngine, Cancellation, EngineOptions, Signature, TensorSpec
from serving.engines.base.errors import Cancelled, EngineError, InferenceFailed
from serving.engines.base.exclusive_slot import ExclusiveSlot
from serving.engines.base.folder import ModelFolder, only_file
from serving.engines.python.loop_thread import LoopThread
from serving.engines.python.module import FILE, UserModule
from serving.engines.python.pipeline import AsyncPipeline, Pipeline, SyncPipeline
from serving.engines.python.stages import LOAD, accepts, find_method, is_async, stages_of
from serving.engines.python.tensors import (
    INPUT,
    OUTPUT,
    concatenate,
    declared_tensors,
    memory_size,
    to_outputs,
    writable_inputs,
)

if TYPE_CHECKING:
    from serving.storage.base.artifact import Artifact

log = logging.getLogger(__name__)

PLATFORM: Final = "python"
THREAD_SAFE: Final = "thread_safe"
MAX_JOINED: Final = 1 << 28  # bytes of a response that is assembled from parts; a generator may never end


def load(artifact: Artifact, _: EngineOptions) -> PythonEngine:
    """Load the class in the artifact's `model.py`. Raises LoadFailed, StorageError."""
    inside = posixpath.dirname(only_file(artifact, (FILE,)))
    with ExitStack() as opened:
        folder = opened.enter_context(ModelFolder(artifact, FILE))
        place = folder.path / inside
        module = opened.enter_context(closing(UserModule(folder, place)))
        model = module.instance()
        loop = opened.enter_context(closing(LoopThread("model"))) if is_async(model) else None
        with module.user_code(LOAD):
            _call_load(model, place, loop)
        inputs, outputs = declared_tensors(model, "inputs", INPUT), declared_tensors(model, "outputs", OUTPUT)
        stages = stages_of(model, [spec.name for spec in inputs])
        pipeline = SyncPipeline(stages) if loop is None else AsyncPipeline(stages, loop)
        exclusive = loop is None and not getattr(model, THREAD_SAFE, False)
        made = StreamingPythonEngine if stages.yields else PythonEngine
        return made(pipeline, Signature(PLATFORM, inputs, outputs), exclusive, opened.pop_all())


class PythonEngine(BaseEngine):
    """An instance of a user's class; `exclusive` allows one call at a time, and `close` closes `opened`."""

    def __init__(self, pipeline: Pipeline, signature: Signature, exclusive: bool, opened: ExitStack) -> None:
        super().__init__(signature, is_async=pipeline.is_async)  # never bounded: user code may do anything
        self._pipeline = pipeline
        self._outputs: Mapping[str, TensorSpec] = {spec.name: spec for spec in signature.outputs}
        shared = ExclusiveSlot()
        self._slot: Callable[[], ExclusiveSlot] = (lambda: shared) if exclusive else ExclusiveSlot
        self._opened = opened

    def infer(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Sequence[Tensor]:
        """Call the stages once. Raises InputRefused, InferenceFailed, Cancelled."""
        with self._slot().acquire(cancellation), _user_errors():
            return to_outputs(self._pipeline.value(writable_inputs(inputs), cancellation), self._outputs, outputs)

    def close(self) -> None:
        """Release the object and its module."""
        self._opened.close()


class StreamingPythonEngine(PythonEngine):
    """An instance whose `predict` is a generator."""

    def stream(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Generator[Sequence[Tensor], None, None]:
        """Yield the outputs of each part of the generator. Raises as `infer`, at any part."""
        parts, slot = self._pipeline.parts(writable_inputs(inputs), cancellation), self._slot()
        with slot.acquire(cancellation, partial(_close, parts)) as holder:
            while True:
                if cancellation is not None and cancellation.cancelled:
                    raise Cancelled("the inference was cancelled")
                with _user_errors():
                    try:
                        made = to_outputs(next(parts), self._outputs, outputs)
                    except StopIteration:
                        return
                with slot.sending(holder):
                    yield made

    def infer(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Sequence[Tensor]:
        """Return all parts, concatenated. Raises InputRefused, InferenceFailed, Cancelled."""
        parts, size = [], 0
        with closing(self.stream(inputs, outputs, cancellation)) as stream:
            for part in stream:
                parts.append(part)
                size += sum(map(memory_size, part))
                if size > MAX_JOINED:
                    raise InferenceFailed(f"the response is larger than {format_size(MAX_JOINED)}: request a stream")
        if not parts:
            raise InferenceFailed("the model's generator yielded nothing")
        return concatenate(parts)


def _call_load(model: Any, place: Path, loop: LoopThread | None) -> None:
    found = find_method(model, LOAD)
    if found is None:
        return
    result = found(place) if accepts(found, place) else found()
    if loop is not None and hasattr(result, "__await__"):
        loop.run(result)


def _close(parts: Generator[Any, None, None]) -> None:
    """Close a generator, which runs its clean-up code."""
    try:
        parts.close()
    except BaseException as error:  # user code may call sys.exit()
        log.warning("closing the model's generator failed: %s: %s", type(error).__name__, error)


@contextmanager
def _user_errors() -> Iterator[None]:
    """Turn errors of user code inside the block into InferenceFailed, except an EngineError that it raises itself."""
    try:
        yield
    except EngineError:
        raise
    except BaseException as error:  # also SystemExit: the code may run on the server's event loop
        raise InferenceFailed(f"{type(error).__name__}: {error}") from error
