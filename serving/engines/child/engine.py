"""An engine in a process of its own.

For libraries that keep Python's lock while they work (the server could not even say that it lives), that must be called
by always the same thread, or that a model can make crash: the server survives, and the process is started again for the
next request.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import Cancellation, EngineOptions, Signature
from serving.engines.base.errors import Cancelled, EngineError, InferenceFailed, InputRefused, LoadFailed
from serving.engines.base.exclusive_slot import PATIENCE, Turn
from serving.engines.base.folder import Folder
from serving.engines.base.loaded import LoadedModel
from serving.engines.child.messages import Answer, Failed, Infer, Load, Loaded, Message, heads_of
from serving.engines.child.process import ChildGone, ChildProcess, Patience

if TYPE_CHECKING:
    from serving.storage.base.artifact import Artifact

log = logging.getLogger(__name__)

LONGER: Final = 5.0  # times as long as the first time may it take to load the model again

_RAISED: Final[dict[str, type[EngineError]]] = {
    kind.__name__: kind for kind in (LoadFailed, InputRefused, InferenceFailed)
}


class ChildEngine(LoadedModel):
    """The model that `module` loads from `folder`, as other engines' modules do, but in a process of its own.

    One inference at a time. Never bounded: the time of this process says nothing of the other's. Closes `folder`.
    Raises LoadFailed.
    """

    def __init__(self, module: str, folder: Folder, artifact: Artifact, options: EngineOptions) -> None:
        self._load = Load(module, str(folder.path), artifact.uri, options)
        self._folder = folder
        self._turn = Turn()
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
        """Ask the process. Raises InputRefused, InferenceFailed, Cancelled; LoadFailed if it does not start again."""
        with self._turn.taken(cancellation):
            answer, tensors = self._ask(inputs, outputs, cancellation)
        if isinstance(answer, Failed):
            raise _error_of(answer)
        if not isinstance(answer, Answer) or len(tensors) != len(outputs):
            raise InferenceFailed("the process of the model gave something else than an answer")
        return tensors

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._child.close()
            self._child = None
        self._folder.close()

    def _ask(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None
    ) -> tuple[Message, list[Tensor]]:
        child = self._running()
        if cancellation is not None and cancellation.cancelled:
            raise Cancelled("the inference was cancelled")
        patience = Patience(child, PATIENCE)
        if cancellation is not None:
            cancellation.on_cancel(patience.begin)
        tensors = list(inputs.values())
        try:
            return child.ask(Infer(heads_of(list(inputs), tensors), list(outputs)), tensors)
        except ChildGone as error:
            self._child = None
            log.warning("the process of the model ended %s: it is started again for the next request", error)
            if cancellation is not None and cancellation.cancelled:
                raise Cancelled("the inference did not end and was killed") from error
            raise InferenceFailed(f"the process of the model ended {error}") from error
        finally:
            patience.end()

    def _running(self) -> ChildProcess:
        if self._child is not None and not self._child.ended:
            return self._child
        if self._child is not None:
            log.warning("the process of the model ended while nobody asked it: it is started again")
            self._child.close()
            self._child = None
        return self._start(PATIENCE + LONGER * self._load_time)[0]

    def _start(self, within: float | None = None) -> tuple[ChildProcess, Signature]:
        """The process and what it says of its model, which it loads `within` seconds."""
        child = ChildProcess(self._load.options.threads)
        patience = Patience(child, within or 0.0)
        if within is not None:
            patience.begin()
        try:
            answer, _ = child.ask(self._load)
        except ChildGone as error:
            raise LoadFailed(f"the process that loads {self._load.uri} ended {error}") from error
        except BaseException:
            child.close()
            raise
        finally:
            patience.end()
        if isinstance(answer, Loaded):
            self._child = child
            return child, answer.signature
        child.close()
        raise _error_of(answer) if isinstance(answer, Failed) else LoadFailed("the model's process gave no signature")


def _error_of(failed: Failed) -> EngineError:
    return _RAISED.get(failed.error, InferenceFailed)(failed.words)
