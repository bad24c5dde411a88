"""Explain the traffic and the replicas of a Model."""

from __future__ import annotations

from collections.abc import Iterable

from autoscaler.warmpool.spec import AUTO
from clusters.base.errors import Forbidden
from clusters.base.objects import WARM_POOL, Object, name_of, namespace_of
from serving.client.api import ApiCalls
from serving.client.effects import Call
from serving.client.platform_ref import DEFAULT_NAMESPACE
from serving.control_api.table import format_of_pool
from serving.reconciler.rollout.state import rollout_of
from serving.types.model import format_of


def traffic_rule(model: Object) -> str:
    """Return the rule that determines the traffic split of a Model. Pure."""
    spec, state = model["spec"], rollout_of(model)
    if spec.get("traffic"):
        return f"pinned by spec.traffic (`knodel promote {name_of(model)}` removes the pin)"
    if spec.get("canaryTrafficPercent") is not None:
        return f"{spec['canaryTrafficPercent']} % to the latest ready version, by spec.canaryTrafficPercent"
    if state is not None and state.runs:
        return f"{state.percent} % to {state.candidate}, by the rollout"
    if state is not None and state.refuses and state.candidate == model["status"].get("latestCreatedRevision"):
        return f"all to {state.stable}, since {state.candidate} was rolled back"
    if spec.get("variants"):
        return "all to the latest ready version, split by spec.variants"
    return "all to the latest ready version"


def pool_notes(api: ApiCalls, model: Object) -> Call[list[str]]:
    """Return a sentence for each warm pool that the model cannot use; none if pools cannot be read."""
    try:
        pools = (yield from api.list(WARM_POOL, namespace_of(model)))["items"]
    except Forbidden:
        return []
    return unused_pools(model, pools)


def unused_pools(model: Object, pools: Iterable[Object]) -> list[str]:
    """Return a line for each pool that the model cannot use, because its members have loaded another engine. Pure.

    Return none while the format of the model is unknown, or if a pool has its format.
    """
    found = format_of(model)
    others = [pool for pool in pools if (pool.get("spec") or {}).get("size", AUTO) != 0]
    if not found or any(format_of_pool(pool) == found for pool in others):
        return []
    where = "" if namespace_of(model) == DEFAULT_NAMESPACE else f" -n {namespace_of(model)}"
    remedy = f"`knodel pool set {found} --like {name_of(model)} --size 1{where}` creates a pool for its format"
    return [
        f"warm pool {name_of(pool)} has {format_of_pool(pool)} members, which a {found} model cannot use: {remedy}"
        for pool in others
    ]
