"""The fields of `resources` that request GPUs, from options and arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def gpu_fields(
    gpu: int | None = None,
    fraction: float | None = None,
    resource: str | None = None,
    types: Sequence[str] | None = None,
) -> dict[str, Any] | None:
    """Return the fields to merge into `resources`; None if none is given. Faults are left to the validation.

    A stored part of a GPU gives way to whole GPUs, and the other way round.

    Example:
        gpu_fields(fraction=0.5)  # {"gpuFraction": 0.5, "gpu": None, "gpuResource": None}
    """
    fields: dict[str, Any] = {}
    if gpu is not None or resource is not None:
        fields["gpuFraction"] = None
    if fraction is not None:
        fields |= {"gpuFraction": fraction, "gpu": None, "gpuResource": None}
    given = {"gpu": gpu, "gpuResource": resource, "gpuTypes": None if types is None else list(types) or None}
    fields |= {name: value for name, value in given.items() if value is not None}
    if types is not None and not types:
        fields["gpuTypes"] = None
    return fields or None
