"""Errors of loading a model and of running it.

KnodelError
└── EngineError
    ├── UnknownFormat       no engine for these files, or for the named format
    ├── MissingEngine       the engine's libraries are not installed
    ├── LoadFailed          the engine cannot serve the artifact
    ├── InputRefused        the model rejects the input: the caller's fault
    ├── InferenceFailed     the model failed on the input: not the caller's fault
    └── Cancelled           the inference was cancelled before it had a result
"""

from __future__ import annotations

import re
from typing import Final

from clusters.base.errors import KnodelError
from clusters.base.redact import one_line

MAX_REASON: Final = 300  # characters of a library's message that our messages repeat
_NOISE: Final = re.compile(
    r"""
    ^\[ONNXRuntimeError\]\ :\ \d+\ :\ \w+\ :\        # ONNX Runtime's status
    | ^.*Error\ Message\ Summary:\s*-*\s*            # PaddlePaddle's stack, before the message
    | Stack\ trace:.*                                # XGBoost's, after the message
    """,
    re.VERBOSE | re.DOTALL,
)
_PATH: Final = re.compile(r"\(at /\S+\)|(?<!\w)/[\w./+-]+(:\d+)?")


class EngineError(KnodelError):
    """An error of loading a model or of running it."""


class UnknownFormat(EngineError):
    """No engine is known for the artifact."""


class MissingEngine(EngineError):
    """The engine's libraries are not installed here."""


class LoadFailed(EngineError):
    """The engine cannot serve the artifact."""


class InputRefused(EngineError):
    """The model rejects this input. `str` may hold the library's message and is for the log only."""


class InferenceFailed(EngineError):
    """The model failed. `str` may hold the library's message and is for the log only."""


class Cancelled(EngineError):
    """The inference was cancelled."""


def short_reason(error: BaseException) -> str:
    """Return the message of a library's error for our messages: one short line, without paths of this machine.

    The result is the name of the error's class when its message is empty.
    """
    return one_line(_PATH.sub("…", _NOISE.sub("", str(error))), MAX_REASON) or type(error).__name__
