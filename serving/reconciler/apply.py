"""Apply a plan: send its writes to the cluster one after the other, and return the resulting objects."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from clusters.base.api import Cluster
from clusters.base.errors import Forbidden, Invalid, NotFound
from clusters.base.objects import CONFIGURATION, ROUTE, SERVICE, Key, Kind, Object, key_of, name_of
from clusters.runtime.informer import Informers
from serving.reconciler.actions import Action, Apply, Delete, Patch
from serving.reconciler.observe import World
from serving.reconciler.plan import Plan

FIELD_MANAGER = "knodel"
"""The name of this controller in `metadata.managedFields`."""


@dataclass(frozen=True, slots=True)
class WriteRefusal:
    """A write that the cluster refused, and that only another spec, flag or permission can make possible."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ApplyOutcome:
    """The Model's objects with the answers of the cluster, and the first refusal, if any."""

    world: World
    refusal: WriteRefusal | None = None


async def apply_plan(cluster: Cluster, informers: Informers, plan: Plan, world: World) -> ApplyOutcome:
    """Send every write of the plan. Raises what the cluster raises, except refusals (Invalid, Forbidden).

    A group of writes ends at one that was planned from a version that this process has changed since (`OwnWrites`): it
    would be refused as a conflict. The change that is on its way to the informer starts another pass, which continues.
    """
    refusals: list[WriteRefusal] = []
    for group in (plan.adapters, plan.objects, plan.digests, *((mark,) for mark in plan.marks)):
        for action in group:
            if action.version and informers[action.kind].own_writes.is_outdated(_key(action), action.version):
                break
            try:
                world = await _apply_action(cluster, informers, action, world)
            except (Invalid, Forbidden) as error:
                causes = "; ".join(str(cause) for cause in error.causes) if isinstance(error, Invalid) else str(error)
                refusals.append(WriteRefusal(error.reason, f"{action.kind.kind} {_key(action).name}: {causes}"))
                break
    return ApplyOutcome(world, refusals[0] if refusals else None)


async def _apply_action(cluster: Cluster, informers: Informers, action: Action, world: World) -> World:
    match action:
        case Apply(kind, obj, force, version):
            answer = await cluster.apply(kind, _expecting(version, obj), manager=FIELD_MANAGER, force=force)
        case Patch(kind, key, patch, version):
            expecting = _expecting(version, patch)
            answer = await cluster.patch(kind, key.name, expecting, key.namespace, manager=FIELD_MANAGER)
        case Delete(kind, key, uid):
            with suppress(NotFound):  # deleted by another client
                await cluster.delete(kind, key.name, key.namespace, uid=uid)
            if kind is SERVICE:
                return replace(world, service=None)
            kept = {name: obj for name, obj in world.configurations.items() if name != key.name}
            return replace(world, configurations=kept)
    if action.version:
        informers[action.kind].own_writes.record(answer)
    return _with(world, action.kind, answer)


def _key(action: Action) -> Key:
    return key_of(action.object) if isinstance(action, Apply) else action.key


def _expecting(version: str, content: Object) -> Object:
    """Return the content with the precondition that the object is unchanged since `version`."""
    metadata = content.get("metadata") or {}
    return {**content, "metadata": {**metadata, "resourceVersion": version}} if version else content


def _with(world: World, kind: Kind, obj: Object) -> World:
    if kind is SERVICE:
        return replace(world, service=obj)
    if kind is ROUTE:
        return replace(world, route=obj)
    if kind is CONFIGURATION:
        return replace(world, configurations={**world.configurations, name_of(obj): obj})
    return world  # the status does not depend on what marks change
