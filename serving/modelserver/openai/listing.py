"""The lists of models in OpenAI's form. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

OWNER: Final = "knodel"


def model_names(name: str, adapters: Sequence[str]) -> list[str]:
    """Return the names by which callers ask for the model and its adapters."""
    return [name, *(f"{name}:{adapter}" for adapter in adapters)]


def model_entry(name: str) -> dict[str, Any]:
    """Return the entry of a model or an adapter; `created` is unknown and 0."""
    return {"id": name, "object": "model", "created": 0, "owned_by": OWNER}


def model_list(names: Sequence[str]) -> dict[str, Any]:
    """Return the list of models."""
    return {"object": "list", "data": [model_entry(name) for name in names]}
