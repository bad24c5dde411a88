"""Models that are Python code: a class in `model.py`. The registry lets none come here that was not named, and allowed.

    class Model:
        inputs = [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]      # optional, as are outputs
        def load(self, folder): ...                                         # optional; so is the parameter, a Path
        def predict(self, x): ...

Arrays are NumPy's. A class that declares nothing has one input and one output of FP64, `input-0` and `output-0`.
`python_stages` says which methods there are, `python_tensors` what they may give. Code that raises
`serving.engines.base.errors.InputRefused` blames the caller (400); whatever else it raises is the model's fault (500).

Plain methods are called by one thread at a time, unless the class says `thread_safe = True`; a generator is asked for
its last part before anybody else is asked anything, unless its reader stalls and others wait (`turn`). Async ones run
side by side on one loop, as many as the server lets in.
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
from serving.engines.base.engine import Cancellation, EngineOptions, Signature, TensorSpec
from serving.engines.base.errors import Cancelled, EngineError, InferenceFailed
from serving.engines.base.exclusive_slot import Turn
from serving.engines.base.folder import Folder, only_file
from serving.engines.base.loaded import LoadedModel
from serving.engines.python.loop_thread import LoopThread
from serving.engines.python.module import FILE, UserModule
from serving.engines.python.pipeline import AsyncPipeline, Pipeline, SyncPipeline
from serving.engines.python.stages import LOAD, is_async, method, stages_of, takes
from serving.engines.python.tensors import INPUT, OUTPUT, answers, declared, joined, own, size_of

if TYPE_CHECKING:
    from serving.storage.base.artifact import Artifact

log = logging.getLogger(__name__)

PLATFORM: Final = "python"
THREAD_SAFE: Final = "thread_safe"
LARGEST_JOINED: Final = 1 << 28  # bytes of an answer that is gathered from parts; a generator may never end


def load(artifact: Artifact, _: EngineOptions) -> PythonEngine:
    """The model of the artifact's `model.py`. Raises LoadFailed, StorageError."""
    inside = posixpath.dirname(only_file(artifact, (FILE,)))
    with ExitStack() as opened:
        folder = opened.enter_context(Folder(artifact, FILE))
        place = folder.path / inside
        module = opened.enter_context(closing(UserModule(folder, place)))
        model = module.instance()
        loop = opened.enter_context(closing(LoopThread("model"))) if is_async(model) else None
        with module.user_code(LOAD):
            _load(model, place, loop)
        inputs, outputs = declared(model, "inputs", INPUT), declared(model, "outputs", OUTPUT)
        stages = stages_of(model, [spec.name for spec in inputs])
        pipeline = SyncPipeline(stages) if loop is None else AsyncPipeline(stages, loop)
        alone = loop is None and not getattr(model, THREAD_SAFE, False)
        made = StreamingPythonEngine if stages.yields else PythonEngine
        return made(pipeline, Signature(PLATFORM, inputs, outputs), alone, opened.pop_all())


class PythonEngine(LoadedModel):
    """An object of a user's class; `opened` is what it needs until it is closed, `alone`: one call at a time."""

    def __init__(self, pipeline: Pipeline, signature: Signature, alone: bool, opened: ExitStack) -> None:
        super().__init__(signature, waits=pipeline.waits)  # not bounded: nobody knows what the code does
        self._pipeline = pipeline
        self._outputs: Mapping[str, TensorSpec] = {spec.name: spec for spec in signature.outputs}
        one = Turn()
        self._turn: Callable[[], Turn] = (lambda: one) if alone else Turn
        self._opened = opened

    def infer(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Sequence[Tensor]:
        """Call the stages once. Raises InputRefused, InferenceFailed, Cancelled."""
        with self._turn().taken(cancellation), _translated():
            return answers(self._pipeline.value(own(inputs), cancellation), self._outputs, outputs)

    def close(self) -> None:
        """Forget the object and its module."""
        self._opened.close()


class StreamingPythonEngine(PythonEngine):
    """An object whose `predict` is a generator."""

    def stream(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Generator[Sequence[Tensor], None, None]:
        """The outputs of each part that it yields. Raises as `infer`, at any part."""
        parts, turn = self._pipeline.parts(own(inputs), cancellation), self._turn()
        with turn.taken(cancellation, partial(_end, parts)) as mine:
            while True:
                _check(cancellation)
                with _translated():
                    try:
                        made = answers(next(parts), self._outputs, outputs)
                    except StopIteration:
                        return
                with turn.aside(mine):
                    yield made

    def infer(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Sequence[Tensor]:
        """All parts as one, see `joined`. Raises InputRefused, InferenceFailed, Cancelled."""
        parts, size = [], 0
        with closing(self.stream(inputs, outputs, cancellation)) as stream:
            for part in stream:
                parts.append(part)
                size += sum(map(size_of, part))
                if size > LARGEST_JOINED:
                    raise InferenceFailed(
                        f"the answer has more than {format_size(LARGEST_JOINED)}: ask for it as a stream"
                    )
        if not parts:
            raise InferenceFailed("the model's generator gave nothing")
        return joined(parts)


def _load(model: Any, place: Path, loop: LoopThread | None) -> None:
    found = method(model, LOAD)
    if found is None:
        return
    result = found(place) if takes(found, place) else found()
    if loop is not None and hasattr(result, "__await__"):
        loop.run(result)


def _end(parts: Generator[Any, None, None]) -> None:
    """End a generator, by whatever code it has for that."""
    try:
        parts.close()
    except BaseException as error:  # also of one that exits
        log.warning("the model's generator failed to end: %s: %s", type(error).__name__, error)


def _check(cancellation: Cancellation | None) -> None:
    if cancellation is not None and cancellation.cancelled:
        raise Cancelled("the inference was cancelled")


@contextmanager
def _translated() -> Iterator[None]:
    """What users' code raises as the server knows it."""
    try:
        yield
    except EngineError:
        raise
    except BaseException as error:  # also of code that exits: it may run on the server's own loop
        raise InferenceFailed(f"{type(error).__name__}: {error}") from error
