"""Which models have to go so that another one fits into the memory that all of them may take. Pure.

Those that nobody uses go first, the least recently used at the head. When they are not enough, models in use follow in
the same order, each as soon as what is in it is answered: else one that is asked without a pause would keep the others
out for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clusters.base.errors import KnodelError
from clusters.base.sizes import format_size


class NoRoom(KnodelError):
    """A model does not fit beside those that cannot be unloaded."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model in memory: its bytes, whether requests are in it, and when one was last (monotonic seconds)."""

    name: str
    memory: int
    in_use: bool
    used_at: float


def to_unload(name: str, needed: int, kept: int, others: Sequence[Loaded], limit: int) -> list[str]:
    """Whom to unload, in this order, so that the model `name` has `needed` bytes, and all together `limit` at most.

    `kept` are those of what is loaded of it already: that answers until then, and stays. Nobody when it fits already.
    Raises NoRoom when it does not fit beside what is kept.
    """
    if needed + kept > limit:
        beside = f" beside the {format_size(kept)} of what is loaded of it" if kept else ""
        remedy = "unload it first, or raise" if kept else "raise"
        raise NoRoom(
            f"model {name!r} needs {format_size(needed)}{beside}, all models may have {format_size(limit)}: "
            f"{remedy} --memory-limit"
        )
    excess = needed + kept + sum(other.memory for other in others) - limit
    chosen: list[str] = []
    for other in sorted(others, key=lambda other: (other.in_use, other.used_at)):
        if excess <= 0:
            break
        chosen.append(other.name)
        excess -= other.memory
    return chosen
