"""The synthetic inputs of the warm-up."""

from __future__ import annotations

import pytest

from serving.engines.base.engine import ANY, TensorSpec
from serving.engines.base.warmup import MAX_BYTES, synthetic_inputs


@pytest.mark.parametrize(("datatype", "size"), [("BYTES", 8), ("BF16", 4), ("FP64", 8), ("BOOL", 1)])
def test_an_invented_input_takes_no_more_memory_than_allowed(datatype: str, size: int) -> None:
    most = MAX_BYTES // size
    assert synthetic_inputs((TensorSpec("x", datatype, (most + 1,)),)) is None
    assert synthetic_inputs((TensorSpec("x", datatype, (ANY, most // 1024)),)) is not None


def test_what_several_inputs_take_counts_together() -> None:
    half = TensorSpec("x", "UINT8", (MAX_BYTES // 2 + 1,))
    assert synthetic_inputs((half, TensorSpec("y", "UINT8", half.shape))) is None
