"""What can go wrong between a model and its engine.

KnodelError
└── EngineError
    ├── UnknownFormat       no engine for these files, or for the format that was named
    ├── MissingEngine       the engine's libraries are not installed
    ├── LoadFailed          the files are no model that the engine takes
    ├── InputRefused        the model refuses this input: the caller's fault
    ├── InferenceFailed     the model failed on this input: not the caller's fault
    └── Cancelled           the inference was asked to end before it had an answer
"""

from __future__ import annotations

from clusters.base.errors import KnodelError


class EngineError(KnodelError):
    """Something between a model and its engine."""


class UnknownFormat(EngineError):
    """No engine is known for the artifact."""


class MissingEngine(EngineError):
    """The engine exists, its libraries are not installed here."""


class LoadFailed(EngineError):
    """The artifact is no model that the engine can serve."""


class InputRefused(EngineError):
    """The model does not take this input; `str` may hold the engine's own words and is for the log only."""


class InferenceFailed(EngineError):
    """The model failed; `str` may hold the engine's own words and is for the log only."""


class Cancelled(EngineError):
    """Nobody waits for the answer any more."""
