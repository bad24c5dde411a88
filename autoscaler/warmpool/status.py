"""The status of a WarmPool, as far as the pool manager writes it: all but `seed`, which is serving's. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from autoscaler.warmpool.pool import Plan
from autoscaler.warmpool.reasons import PoolReason, PoolRule
from clusters.base.objects import Object, generation_of, with_condition

READY: Final = "Ready"
_OBSTACLES: Final = (PoolRule.NO_SEED, PoolRule.NO_SERVER, PoolRule.REFUSED, PoolRule.FAILING)
"""What keeps a pool from being ready until somebody, or time, changes it; the first one found is told."""


def make_status(pool: Object, plan: Plan, now: datetime) -> Object:
    """The fields that the manager owns. Ready: as many free members are ready as are wanted (True), an obstacle stands
    in the way (False), or they are starting (Unknown).
    """
    former = (pool.get("status") or {}).get("conditions") or ()
    return {
        "observedGeneration": generation_of(pool),
        "size": plan.size,
        "ready": plan.ready,
        "starting": plan.starting,
        "claimed": plan.claimed,
        "reasons": [str(reason) for reason in plan.reasons],
        "conditions": with_condition(former, READY, *_ready(plan, now)),
    }


def status_differs(pool: Object, wanted: Object) -> bool:
    """Whether the status is to be written."""
    present = pool.get("status") or {}
    return any(present.get(name) != value for name, value in wanted.items())


def _ready(plan: Plan, now: datetime) -> tuple[str, datetime, str, str]:
    obstacle = _obstacle(plan)
    if plan.ready >= plan.size and (obstacle is None or obstacle.rule not in (PoolRule.NO_SEED, PoolRule.NO_SERVER)):
        return "True", now, "", ""
    if obstacle is not None:
        return "False", now, obstacle.rule.value, obstacle.message
    return "Unknown", now, "Starting", f"{plan.ready} of {plan.size} members are ready"


def _obstacle(plan: Plan) -> PoolReason | None:
    found = (reason for rule in _OBSTACLES for reason in plan.reasons if reason.rule is rule)
    return next(found, None)
