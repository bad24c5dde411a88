"""The messages of libraries as our messages repeat them."""

from __future__ import annotations

import pytest

from serving.engines.base.errors import MAX_REASON, short_reason

XGBOOST = "[21:00:00] /workspace/src/common/json.cc:65: Unexpected EOF\nStack trace:\n  [bt] (0) /usr/lib/x.so(+0x1)"
ONNX = (
    "[ONNXRuntimeError] : 10 : INVALID_GRAPH : This is an invalid model.\nIn Node, /onnxruntime/core/graph.cc:12 Fatal"
)
PADDLE = (
    "\n\n---\nC++ Traceback\n---\n0 paddle::x\n\n---\nError Message Summary:\n---\n"
    "InvalidArgumentError: The index is wrong. (at /paddle/phi/kernels/gather.cc:30)"
)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (XGBOOST, "[21:00:00] …: Unexpected EOF"),
        (ONNX, "This is an invalid model. In Node, … Fatal"),
        (PADDLE, "InvalidArgumentError: The index is wrong. …"),
        ("shape (2/3) is a/b\n", "shape (2/3) is a/b"),
        ("", "ValueError"),
    ],
)
def test_a_reason_is_one_line_without_places_of_this_machine(words: str, reason: str) -> None:
    assert short_reason(ValueError(words)) == reason


def test_a_reason_is_short() -> None:
    assert len(short_reason(ValueError("x" * 1000))) == MAX_REASON
