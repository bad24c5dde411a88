"""Pure functions of batching: which calls may share an inference, how inputs are joined and outputs divided.

Calls in one batch have equal parameters and equal requested outputs. Their inputs differ only in the size of the first
dimension, the rows. An operator who enables batching asserts that the model treats each row independently; the model's
signature is checked for it (`first_unbatchable`), and so is the shape of every result (`split_outputs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import ANY, Signature
from serving.modelserver.codec.protocol_v2 import PreparedRequest

BatchKey: TypeAlias = tuple[Any, ...]
"""The common properties of the calls in a batch. Compared for equality, not hashed."""
_TEXT: Final = "O"  # NumPy's kind of BYTES


@dataclass(frozen=True, slots=True)
class Rows:
    """The row count and the batch key of a call that may be batched."""

    count: int
    key: BatchKey


def first_unbatchable(signature: Signature) -> str:
    """Return the quoted name of the first tensor whose first dimension is not variable; "" when there is none."""
    tensors = (*signature.inputs, *signature.outputs)
    return next((repr(spec.name) for spec in tensors if not spec.shape or spec.shape[0] != ANY), "")


def rows_of(call: PreparedRequest) -> Rows | None:
    """Return the rows of a call; None when it has no rows or its inputs have different numbers of rows."""
    counts = {tensor.shape[0] if tensor.ndim else 0 for tensor in call.inputs.values()}
    if len(counts) != 1 or 0 in counts:
        return None
    tensors = sorted(
        (name, tensor.dtype.str, tensor.shape[1:], _element_types(tensor)) for name, tensor in call.inputs.items()
    )
    return Rows(counts.pop(), (tensors, list(call.outputs), call.parameters or None))


def concatenate_inputs(calls: Sequence[PreparedRequest]) -> dict[str, Tensor]:
    """Return the inputs of all calls, which have equal batch keys, joined along the first dimension."""
    return {name: np.concatenate([call.inputs[name] for call in calls]) for name in calls[0].inputs}


def split_outputs(outputs: Sequence[Tensor], counts: Sequence[int]) -> list[Sequence[Tensor]] | None:
    """Divide the outputs of a batch by the row counts of its calls; None when an output has another number of rows."""
    total = sum(counts)
    if not all(output.ndim and output.shape[0] == total for output in outputs):
        return None
    found: list[Sequence[Tensor]] = []
    begin = 0
    for count in counts:
        found.append([output[begin : begin + count] for output in outputs])
        begin += count
    return found


def _element_types(tensor: Tensor) -> tuple[str, ...]:
    """Return the Python types in a BYTES tensor: engines accept `str` and `bytes`, but perhaps not a mix of both."""
    return tuple(sorted({type(item).__name__ for item in tensor.flat})) if tensor.dtype.kind == _TEXT else ()
