"""How the command speaks of a WarmPool."""

from __future__ import annotations

from autoscaler.warmpool.defaults import AUTO
from clusters.objects import Object, name_of


def pool_summary(pool: Object) -> str:
    """One line on a pool that was made or changed."""
    name, size = name_of(pool), (pool.get("spec") or {}).get("size", AUTO)
    if size == 0:
        return f"warm pool {name} is off: `knodel pool set {name} --size N` turns it on"
    return f"warm pool {name} has size {size}: `knodel pool list` shows its members"
