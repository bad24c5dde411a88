"""Which requests may share one inference, what it is asked, and which part of its answer is whose. Pure.

A batch never mixes: its calls have equal parameters and requested outputs, and inputs that differ in their first
dimension, the rows, only. That a model treats each row by itself is what its operator says by asking for batches; its
signature must agree (`unbatchable`), and so must each answer (`parts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import ANY, Signature
from serving.modelserver.codec.protocol_v2 import PreparedRequest

Kind: TypeAlias = tuple[Any, ...]
"""What the calls of a batch have in common; compared, not hashed."""
_TEXT: Final = "O"  # NumPy's kind of BYTES


@dataclass(frozen=True, slots=True)
class Rows:
    """A call that may share an inference: how many rows it has, of which kind."""

    count: int
    kind: Kind


def unbatchable(signature: Signature) -> str:
    """The first tensor that is not known to have rows, as many as the caller likes; "" when all have."""
    tensors = (*signature.inputs, *signature.outputs)
    return next((repr(spec.name) for spec in tensors if not spec.shape or spec.shape[0] != ANY), "")


def rows_of(call: PreparedRequest) -> Rows | None:
    """None for a call that is asked alone: without a row, or with inputs that do not have as many rows each."""
    counts = {tensor.shape[0] if tensor.ndim else 0 for tensor in call.inputs.values()}
    if len(counts) != 1 or 0 in counts:
        return None
    tensors = sorted((name, tensor.dtype.str, tensor.shape[1:], _texts(tensor)) for name, tensor in call.inputs.items())
    return Rows(counts.pop(), (tensors, list(call.outputs), call.parameters or None))


def merged(calls: Sequence[PreparedRequest]) -> dict[str, Tensor]:
    """The inputs of all calls, which are of one kind, one below the other."""
    return {name: np.concatenate([call.inputs[name] for call in calls]) for name in calls[0].inputs}


def parts(answers: Sequence[Tensor], counts: Sequence[int]) -> list[Sequence[Tensor]] | None:
    """The answer to each call, which has so many rows; None when an output has not as many rows as all of them."""
    total = sum(counts)
    if not all(answer.ndim and answer.shape[0] == total for answer in answers):
        return None
    found: list[Sequence[Tensor]] = []
    begin = 0
    for count in counts:
        found.append([answer[begin : begin + count] for answer in answers])
        begin += count
    return found


def _texts(tensor: Tensor) -> tuple[str, ...]:
    """The types of its elements: engines take texts and bytes, and need not take them side by side."""
    return tuple(sorted({type(item).__name__ for item in tensor.flat})) if tensor.dtype.kind == _TEXT else ()
