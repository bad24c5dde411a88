"""What models are warmed up with."""

from __future__ import annotations

import pytest

from serving.engines.base.engine import ANY, TensorSpec
from serving.engines.base.warmup import LARGEST, invented_inputs


@pytest.mark.parametrize(("datatype", "size"), [("BYTES", 8), ("BF16", 4), ("FP64", 8), ("BOOL", 1)])
def test_an_invented_input_takes_no_more_memory_than_allowed(datatype: str, size: int) -> None:
    most = LARGEST // size
    assert invented_inputs((TensorSpec("x", datatype, (most + 1,)),)) is None
    assert invented_inputs((TensorSpec("x", datatype, (ANY, most // 1024)),)) is not None


def test_what_several_inputs_take_counts_together() -> None:
    half = TensorSpec("x", "UINT8", (LARGEST // 2 + 1,))
    assert invented_inputs((half, TensorSpec("y", "UINT8", half.shape))) is None
