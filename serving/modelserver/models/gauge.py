"""How much memory a model takes, apart from what its format takes once, and from what is free and only kept."""

from __future__ import annotations

from serving.modelserver.base.assignment import ModelBounds
from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.execution.memory import give_back, resident
from serving.modelserver.pool.prewarm import rehearse_model


class Gauge:
    """Tells the bytes of main memory before a model of a format is loaded, and after.

    Used by one thread at a time, and by those whose load hung and ended after all, for which nobody waits.

    The first model of a format fills the tables of its library: ONNX Runtime's have 20 MB, which no later model takes
    again nor the first gives back. So a model of a few bytes comes before it.
    """

    def __init__(self, bounds: ModelBounds, limits: ServerLimits) -> None:
        self._bounds = bounds
        self._limits = limits
        self._seen: set[str] = set()

    def __call__(self, format: str) -> int:
        """The bytes now. Raises EngineError when the engine cannot load even that model."""
        if format not in self._seen:
            rehearse_model(format, self._bounds, self._limits)
            self._seen.add(format)
        give_back()
        return resident()
