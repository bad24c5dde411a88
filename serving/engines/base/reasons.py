"""What a library says of its error, as messages repeat it: on one line, short, without places on this machine. Pure."""

from __future__ import annotations

import re
from typing import Final

from clusters.base.redact import one_line

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
    return one_line(_PLACE.sub("…", _NOISE.sub("", str(error))), LONGEST) or type(error).__name__
