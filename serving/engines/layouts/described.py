"""An engine whose tensors have the names, datatypes and shapes of a description, not those of the model's file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from serving.engines.base.datatypes import DATATYPES, Tensor
from serving.engines.base.engine import BaseEngine, Cancellation, Engine, Signature, TensorSpec
from serving.engines.base.errors import InputRefused


class DescribedTensor(msgspec.Struct, frozen=True):
    """A served input or output; `source` is its name in the engine.

    `convert` makes the engine's tensor of a served input, and the served tensor of the engine's output. It may raise
    ValueError for an input.
    """

    spec: TensorSpec
    source: str
    convert: Callable[[Tensor], Tensor]


class DescribedEngine(BaseEngine):
    """The engine `inner` with other tensors. It owns `inner`."""

    def __init__(self, inner: Engine, inputs: Sequence[DescribedTensor], outputs: Sequence[DescribedTensor]) -> None:
        signature = Signature(
            inner.signature.platform, tuple(one.spec for one in inputs), tuple(one.spec for one in outputs)
        )
        super().__init__(signature, inner.bounded, inner.is_async)
        self._inner = inner
        self._inputs = {one.spec.name: one for one in inputs}
        self._outputs = {one.spec.name: one for one in outputs}

    def infer(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Sequence[Tensor]:
        """Return the named outputs, in order. Raises InputRefused, InferenceFailed, Cancelled."""
        try:
            given = {self._inputs[name].source: self._inputs[name].convert(value) for name, value in inputs.items()}
        except ValueError as error:
            raise InputRefused(str(error)) from error
        wanted = [self._outputs[name] for name in outputs]
        sources = list(dict.fromkeys(one.source for one in wanted))
        results = dict(zip(sources, self._inner.infer(given, sources, cancellation), strict=True))
        return [one.convert(results[one.source]) for one in wanted]

    def close(self) -> None:
        """Release the model."""
        self._inner.close()


def cast_to(datatype: str, tensor: Tensor) -> Tensor:
    """Return the array with the dtype of a datatype of the protocol."""
    return tensor.astype(DATATYPES[datatype].dtype, copy=False)
