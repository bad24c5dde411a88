"""Whether a tensor is of a shape that was declared. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from serving.engines.base.engine import ANY


def fits(expected: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether `shape` has the sizes of `expected`, which has `ANY` where a size may vary."""
    return len(shape) == len(expected) and all(
        wanted in (ANY, given) for wanted, given in zip(expected, shape, strict=True)
    )
