"""Texts on WarmPools."""

from __future__ import annotations

from collections.abc import Iterable

from autoscaler.warmpool.defaults import AUTO
from clusters.base.objects import Object, name_of, namespace_of
from serving.cli.context import DEFAULT_NAMESPACE
from serving.control_api.table import format_of_pool


def pool_summary(pool: Object) -> str:
    """Return one line on a pool that was made or changed."""
    name, size = name_of(pool), (pool.get("spec") or {}).get("size", AUTO)
    if size == 0:
        return f"warm pool {name} is off: `knodel pool set {name} --size 1` turns it on"
    models = f"{format_of_pool(pool)} models"
    return f"warm pool {name} has size {size}, for {models}: `knodel pool list` shows its members"


def unused_pools(model: Object, pools: Iterable[Object]) -> list[str]:
    """Return a line for each pool that a model cannot use since its members have loaded another engine. Pure.

    None when the model's format is not known yet, or when there is a pool of its format.
    """
    found = (model.get("spec") or {}).get("modelFormat") or (model.get("status") or {}).get("modelFormat")
    others = [pool for pool in pools if (pool.get("spec") or {}).get("size", AUTO) != 0]
    if not found or any(format_of_pool(pool) == found for pool in others):
        return []
    where = "" if namespace_of(model) == DEFAULT_NAMESPACE else f" -n {namespace_of(model)}"
    remedy = f"`knodel pool set {found} --like {name_of(model)} --size 1{where}` makes a pool of its format"
    return [
        f"warm pool {name_of(pool)} has {format_of_pool(pool)} members, of no use to a {found} model: {remedy}"
        for pool in others
    ]
