"""What a library says of its error, as messages repeat it: on one line, short, without places on this machine. Pure."""

from __future__ import annotations

import re
from typing import Final

LONGEST: Final = 300  # characters of a library's words that are repeated
_NOISE: Final = re.compile(
    r"""
    ^\[ONNXRuntimeError\]\ :\ \d+\ :\ \w+\ :\        # ONNX Runtime's status
    | ^.*Error\ Message\ Summary:\s*-*\s*            # PaddlePaddle's stack, in front
    | Stack\ trace:.*                                # XGBoost's, behind
    """,
    re.VERBOSE | re.DOTALL,
)
_PLACE: Final = re.compile(r"\(at /\S+\)|(?<!\w)/[\w./+-]+(:\d+)?")


def reason_of(error: BaseException) -> str:
    """The words of an error of any of the engines' libraries; its name when it has none."""
    return shortened(_PLACE.sub("…", _NOISE.sub("", str(error)))) or type(error).__name__


def shortened(words: str) -> str:
    """The beginning of `words`, on one line."""
    return " ".join(words.split())[:LONGEST]
