"""Knodel for programs: clients of a platform, and what a training script imports.

    import knodel

    client = knodel.Client()
    client.deploy("iris.onnx", "iris")
    answer = client.predict("iris", [[5.1, 3.5, 1.4, 0.2]])

    knodel.emit_training_completed("iris", "s3://models/iris/7/", version="7", metrics={"accuracy": 0.98})

Names are imported when they are first used: `import knodel` loads neither the platform nor a third-party package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from clusters.base.errors import Conflict, Forbidden, Invalid, KnodelError, NotFound
    from eventing.emit import NotEmitted, emit_training_completed
    from knodel.client import AsyncClient, Client, KnodelWarning
    from knodel.results.chat import Chat
    from knodel.results.explanation import Explanation
    from knodel.results.model import (
        LogLine,
        Model,
        ModelHistory,
        ModelList,
        ModelNotice,
        ModelNoticeList,
        TrafficSplit,
        TrafficTarget,
    )
    from knodel.results.prediction import Prediction
    from knodel.results.rollout import RolloutStep
    from knodel.saving.errors import NotSaved
    from knodel.saving.save import Saved, save
    from serving.client.errors import ModelError, TimedOut, Unreachable

__all__ = [
    "AsyncClient", "Chat", "Client", "Conflict", "Explanation", "Forbidden", "Invalid", "KnodelError", "KnodelWarning",
    "LogLine", "Model", "ModelError", "ModelHistory", "ModelList", "ModelNotice", "ModelNoticeList", "NotEmitted",
    "NotFound", "NotSaved", "Prediction", "RolloutStep", "Saved", "TimedOut", "TrafficSplit", "TrafficTarget",
    "Unreachable", "emit_training_completed", "save",
]  # fmt: skip

_NAMES: Final = {
    "clusters.base.errors": ("Conflict", "Forbidden", "Invalid", "KnodelError", "NotFound"),
    "eventing.emit": ("NotEmitted", "emit_training_completed"),
    "knodel.client": ("AsyncClient", "Client", "KnodelWarning"),
    "knodel.results.chat": ("Chat",),
    "knodel.results.explanation": ("Explanation",),
    "knodel.results.model": (
        "LogLine", "Model", "ModelHistory", "ModelList", "ModelNotice", "ModelNoticeList", "TrafficSplit",
        "TrafficTarget",
    ),
    "knodel.results.prediction": ("Prediction",),
    "knodel.results.rollout": ("RolloutStep",),
    "knodel.saving.errors": ("NotSaved",),
    "knodel.saving.save": ("Saved", "save"),
    "serving.client.errors": ("ModelError", "TimedOut", "Unreachable"),
}  # fmt: skip
_MODULES: Final = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import `name` from the module that defines it. Raises AttributeError for any other name."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'knodel' has no attribute {name!r}: it has {', '.join(__all__)}")
    found = globals()[name] = getattr(import_module(module), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
