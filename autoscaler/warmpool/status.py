"""The WarmPool status fields of the pool manager: all but `seed`, which serving writes. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from autoscaler.warmpool.pool import PoolPlan
from autoscaler.warmpool.reasons import PoolRule
from clusters.base.objects import Object, generation_of, with_condition

READY: Final = "Ready"
OBSTACLES: Final = (PoolRule.NO_SEED, PoolRule.NO_SERVER, PoolRule.REFUSED, PoolRule.FAILING)
"""Reasons for Ready=False, by priority: they last until a user or time resolves them."""


def make_status(pool: Object, plan: PoolPlan, now: datetime) -> Object:
    """Return the manager's fields.

    Ready is True if as many free members are ready as desired, False if an obstacle exists, Unknown while members are
    starting.
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
    """Return whether the status must be written."""
    present = pool.get("status") or {}
    return any(present.get(name) != value for name, value in wanted.items())


def _ready(plan: PoolPlan, now: datetime) -> tuple[str, datetime, str, str]:
    found = (reason for rule in OBSTACLES for reason in plan.reasons if reason.rule is rule)
    obstacle = next(found, None)
    if plan.ready >= plan.size and (obstacle is None or obstacle.rule not in (PoolRule.NO_SEED, PoolRule.NO_SERVER)):
        return "True", now, "", ""
    if obstacle is not None:
        return "False", now, obstacle.rule.value, obstacle.message
    return "Unknown", now, "Starting", f"{plan.ready} of {plan.size} members are ready"
