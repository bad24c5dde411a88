"""What all engines say of their model in the same way."""

from __future__ import annotations

from serving.engines.base import Signature


class LoadedModel:
    """A model's tensors, and whether a short inference stays short (`Engine.bounded`)."""

    def __init__(self, signature: Signature, bounded: bool = False) -> None:
        self._signature = signature
        self._bounded = bounded

    @property
    def signature(self) -> Signature:
        """The model's tensors."""
        return self._signature

    @property
    def bounded(self) -> bool:
        """Whether the model is known to do nothing but arithmetic, of the thread that asks it."""
        return self._bounded
