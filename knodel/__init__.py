"""Knodel for programs: what a training script or a client imports.

    from knodel import KnodelError, emit_training_completed

    emit_training_completed("iris", "s3://models/iris/7/", version="7", metrics={"accuracy": 0.98})

Names are imported when they are first used: `import knodel` loads neither the platform nor a third-party package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from clusters.base.errors import KnodelError
    from eventing.emit import NotEmitted, emit_training_completed

__all__ = ["KnodelError", "NotEmitted", "emit_training_completed"]

_MODULES: Final = {
    "KnodelError": "clusters.base.errors",
    "NotEmitted": "eventing.emit",
    "emit_training_completed": "eventing.emit",
}


def __getattr__(name: str) -> Any:
    """Import `name` from the module that defines it. Raises AttributeError for any other name."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'knodel' has no attribute {name!r}: it has {', '.join(__all__)}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
