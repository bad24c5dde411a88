"""What all engines say of their model in the same way."""

from __future__ import annotations

from serving.engines.base.engine import Signature


class LoadedModel:
    """A model's tensors, whether a short inference stays short (`Engine.bounded`), and whether it waits (`waits`)."""

    def __init__(self, signature: Signature, bounded: bool = False, waits: bool = False) -> None:
        self._signature = signature
        self._bounded = bounded
        self._waits = waits

    @property
    def signature(self) -> Signature:
        """The model's tensors."""
        return self._signature

    @property
    def bounded(self) -> bool:
        """Whether the model is known to do nothing but arithmetic, of the thread that asks it."""
        return self._bounded

    @property
    def waits(self) -> bool:
        """Whether the model is known to run on an event loop of its own, and not in the thread that asks it."""
        return self._waits
