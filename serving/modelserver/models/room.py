"""Choose the models to unload so that another one fits into the memory limit of all models. Pure.

Idle models are unloaded first, the least recently used one at the head. When they do not suffice, models in use follow
in the same order, each as soon as its requests in flight are answered. Otherwise a model with permanent traffic would
keep the others out for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clusters.base.errors import KnodelError
from clusters.base.sizes import format_size


class InsufficientMemory(KnodelError):
    """A model does not fit beside the models that cannot be unloaded."""


@dataclass(frozen=True, slots=True)
class EvictionCandidate:
    """A model in memory. `memory`: bytes; `in_use`: requests are in flight; `used_at`: last use, monotonic seconds."""

    name: str
    memory: int
    in_use: bool
    used_at: float


def choose_evictions(
    name: str, needed: int, kept: int, candidates: Sequence[EvictionCandidate], limit: int
) -> list[str]:
    """Return the models to unload, in order, so that the model `name` gets `needed` bytes within `limit` for all.

    `kept` is the memory of the revision of the model that is already loaded: it serves until the new one is loaded.
    Returns an empty list when the model fits already. Raises InsufficientMemory when it does not even fit alone.
    """
    if needed + kept > limit:
        beside = f" beside the {format_size(kept)} of its loaded revision" if kept else ""
        remedy = "unload it first, or raise" if kept else "raise"
        raise InsufficientMemory(
            f"model {name!r} needs {format_size(needed)}{beside}, but the limit of all models is "
            f"{format_size(limit)}: {remedy} --memory-limit"
        )
    excess = needed + kept + sum(other.memory for other in candidates) - limit
    chosen: list[str] = []
    for other in sorted(candidates, key=lambda other: (other.in_use, other.used_at)):
        if excess <= 0:
            break
        chosen.append(other.name)
        excess -= other.memory
    return chosen
