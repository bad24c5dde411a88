"""An engine in a separate process, which is started again for the next request if it ends.

Some libraries need this:

- those that hold Python's GIL while they compute, which would block the server's probes
- those that must always be called by the same thread
- those that a model can crash
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import BaseEngine, Cancellation, EngineOptions, Signature
from serving.engines.base.errors import Cancelled, EngineError, InferenceFailed, InputRefused, LoadFailed
from serving.engines.base.exclusive_slot import HANG_AFTER, ExclusiveSlot
from serving.engines.base.folder import ModelFolder
from serving.engines.child.messages import (
    ChildFailure,
    InferenceOutputs,
    LoadModel,
    Message,
    ModelLoaded,
    RunInference,
    tensor_headers,
)
from serving.engines.child.process import ChildExited, ChildProcess, KillTimer

if TYPE_CHECKING:
    from serving.storage.base.artifact import Artifact

log = logging.getLogger(__name__)

RELOAD_FACTOR: Final = 5.0  # a reload may take this many times as long as the first load

_ERRORS: Final[dict[str, type[EngineError]]] = {
    kind.__name__: kind for kind in (LoadFailed, InputRefused, InferenceFailed)
}


class ChildEngine(BaseEngine):
    """A model in a separate process: `module` has `load(artifact, options)`, as other engines have, and runs there.

    It runs one inference at a time. It is never `bounded`, because the CPU time of this process does not include the
    other's. `close` closes `folder` too. Raises LoadFailed.
    """

    def __init__(self, module: str, folder: ModelFolder, artifact: Artifact, options: EngineOptions) -> None:
        self._load = LoadModel(module, str(folder.path), artifact.uri, options)
        self._folder = folder
        self._slot = ExclusiveSlot()
        self._child: ChildProcess | None = None
        self._load_time = 0.0
        began = time.monotonic()
        try:
            super().__init__(self._start()[1])
        except BaseException:
            self.close()
            raise
        self._load_time = time.monotonic() - began

    def infer(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Sequence[Tensor]:
        """Infer in the process. Raises InputRefused, InferenceFailed, Cancelled; LoadFailed if a restart fails."""
        with self._slot.acquire(cancellation):
            response, tensors = self._request(inputs, outputs, cancellation)
        if isinstance(response, ChildFailure):
            raise _error_of(response)
        if not isinstance(response, InferenceOutputs) or len(tensors) != len(outputs):
            raise InferenceFailed("the process of the model sent an unexpected message")
        return tensors

    def close(self) -> None:
        """Kill the process."""
        if self._child is not None:
            self._child.close()
            self._child = None
        self._folder.close()

    def _request(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None
    ) -> tuple[Message, list[Tensor]]:
        child = self._running()
        if cancellation is not None and cancellation.cancelled:
            raise Cancelled("the inference was cancelled")
        timer = KillTimer(child, HANG_AFTER)
        if cancellation is not None:
            cancellation.on_cancel(timer.start)
        tensors = list(inputs.values())
        try:
            return child.request(RunInference(tensor_headers(list(inputs), tensors), list(outputs)), tensors)
        except ChildExited as error:
            self._child = None
            log.warning("the process of the model ended %s: the next request starts it again", error)
            if cancellation is not None and cancellation.cancelled:
                raise Cancelled("the inference did not stop and was killed") from error
            raise InferenceFailed(f"the process of the model ended {error}") from error
        finally:
            timer.stop()

    def _running(self) -> ChildProcess:
        if self._child is not None and not self._child.ended:
            return self._child
        if self._child is not None:
            log.warning("the process of the model ended between two requests: starting it again")
            self._child.close()
            self._child = None
        return self._start(HANG_AFTER + RELOAD_FACTOR * self._load_time)[0]

    def _start(self, within: float | None = None) -> tuple[ChildProcess, Signature]:
        """Start the process, which loads its model, and return it with the model's signature.

        It is killed when it takes longer than `within` seconds. Raises LoadFailed.
        """
        child = ChildProcess(self._load.options.threads)
        timer = KillTimer(child, within or 0.0)
        if within is not None:
            timer.start()
        try:
            response, _ = child.request(self._load)
        except ChildExited as error:
            raise LoadFailed(f"the process that loads {self._load.uri} ended {error}") from error
        except BaseException:
            child.close()
            raise
        finally:
            timer.stop()
        if isinstance(response, ModelLoaded):
            self._child = child
            return child, response.signature
        child.close()
        if isinstance(response, ChildFailure):
            raise _error_of(response)
        raise LoadFailed("the process of the model sent an unexpected message")


def _error_of(failed: ChildFailure) -> EngineError:
    return _ERRORS.get(failed.error, InferenceFailed)(failed.message)
