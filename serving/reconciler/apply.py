"""Carries a plan out, action by action, and tells what came of it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from clusters.base.api import Cluster
from clusters.base.errors import ClusterError, Forbidden, Invalid, NotFound
from clusters.base.objects import CONFIGURATION, ROUTE, SERVICE, Key, Kind, Object, key_of, name_of
from serving.reconciler.actions import Action, Apply, Delete, Patch
from serving.reconciler.observe import World
from serving.reconciler.own_writes import OwnWrites
from serving.reconciler.plan import Plan

FIELD_MANAGER = "knodel"
"""Our name in `metadata.managedFields`."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A write that the cluster refused and that only another spec, flag or right can help."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The world with the answers in it, and the first refusal, if any."""

    world: World
    refusal: Refusal | None = None


async def carry_out(cluster: Cluster, plan: Plan, world: World, own: OwnWrites) -> Outcome:
    """Write everything that the plan says. Raises what the cluster raises, but for refusals.

    A group ends at what was planned from a version that is history by our own doing: the next pass sees it.
    """
    refusals: list[Refusal] = []
    model = key_of(world.model)
    for group in (plan.objects, plan.digests, *((mark,) for mark in plan.marks)):
        for action in group:
            if own.is_spent(model, action.kind, _key(action), action.version):
                break
            try:
                world = await _do(cluster, action, world, own)
            except (Invalid, Forbidden) as error:
                refusals.append(Refusal(error.reason, _explain(action, error)))
                break
    return Outcome(world, refusals[0] if refusals else None)


async def _do(cluster: Cluster, action: Action, world: World, own: OwnWrites) -> World:
    match action:
        case Apply(kind, obj, force, version):
            answer = await cluster.apply(kind, _expecting(version, obj), manager=FIELD_MANAGER, force=force)
        case Patch(kind, key, patch, version):
            expecting = _expecting(version, patch)
            answer = await cluster.patch(kind, key.name, expecting, key.namespace, manager=FIELD_MANAGER)
        case Delete(kind, key, uid):
            with suppress(NotFound):  # somebody was faster
                await cluster.delete(kind, key.name, key.namespace, uid=uid)
            return _without(world, kind, key.name)
    own.note(key_of(world.model), action.kind, _key(action), action.version, answer)
    return _with(world, action.kind, answer)


def _key(action: Action) -> Key:
    return key_of(action.object) if isinstance(action, Apply) else action.key


def _expecting(version: str, content: Object) -> Object:
    """The content with the precondition that nobody wrote the object since `version`."""
    metadata = content.get("metadata") or {}
    return {**content, "metadata": {**metadata, "resourceVersion": version}} if version else content


def _with(world: World, kind: Kind, obj: Object) -> World:
    if kind is SERVICE:
        return replace(world, service=obj)
    if kind is ROUTE:
        return replace(world, route=obj)
    if kind is CONFIGURATION:
        return replace(world, configurations={**world.configurations, name_of(obj): obj})
    return world  # the status reads nothing that marks change


def _without(world: World, kind: Kind, name: str) -> World:
    if kind is SERVICE:
        return replace(world, service=None)
    kept = {other: obj for other, obj in world.configurations.items() if other != name}
    return replace(world, configurations=kept)


def _explain(action: Action, error: ClusterError) -> str:
    name = name_of(action.object) if isinstance(action, Apply) else action.key.name
    words = "; ".join(str(cause) for cause in error.causes) if isinstance(error, Invalid) else str(error)
    return f"{action.kind.kind} {name}: {words}"
