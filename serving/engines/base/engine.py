"""What the model server asks of an engine, whatever the model's format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from serving.engines.base.datatypes import Tensor

ANY: int = -1
"""A dimension that each request chooses."""


class TensorSpec(msgspec.Struct, frozen=True):
    """One input or output: `shape` has `ANY` where it varies, and is None when not even the rank is known."""

    name: str
    datatype: str
    shape: tuple[int, ...] | None


class Signature(msgspec.Struct, frozen=True):
    """A model's tensors; `platform` as the Open Inference Protocol names it (`onnx_onnxv1`).

    `optional` are the outputs that are computed only for a request that names them.
    """

    platform: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    optional: frozenset[str] = frozenset()

    @property
    def usual(self) -> tuple[str, ...]:
        """The outputs of a request that names none."""
        return tuple(spec.name for spec in self.outputs if spec.name not in self.optional)


class EngineOptions(msgspec.Struct, frozen=True):
    """What the container grants: `threads` that one inference may use, whether code of the artifact may run.

    `signature`: which one of a model that has several; "" is its usual one.
    """

    threads: int = 1
    allow_code: bool = False
    signature: str = ""


class Cancellation:
    """Asks a running inference to end; set by the event loop, seen by the thread that runs it."""

    __slots__ = ("_stop", "cancelled")

    def __init__(self) -> None:
        self.cancelled = False
        self._stop: Callable[[], None] | None = None

    def on_cancel(self, stop: Callable[[], None]) -> None:
        """How the engine is stopped; called at once when it is too late already."""
        self._stop = stop
        if self.cancelled:
            stop()

    def cancel(self) -> None:
        """Ask; says nothing of when, or whether, the engine obeys."""
        self.cancelled = True
        if self._stop is not None:
            self._stop()


class Engine(Protocol):
    """A loaded model.

    `bounded`: the model has no loops of its own, so that its time depends on the size of its input only. `waits`: its
    inferences run side by side on an event loop of its own, so that a thread that asks for one mostly waits.
    `infer` blocks and may be called by several threads at once.
    """

    @property
    def signature(self) -> Signature:
        """The model's tensors."""
        ...

    @property
    def bounded(self) -> bool:
        """Whether a short inference stays short for inputs of that size."""
        ...

    @property
    def waits(self) -> bool:
        """Whether more inferences at once than there are cores get more done."""
        ...

    def infer(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Sequence[Tensor]:
        """The named outputs, in order. Raises InputRefused, InferenceFailed, Cancelled."""
        ...

    def close(self) -> None:
        """Let go of the model; no call follows."""
        ...
