"""Apply a plan: send its writes to the cluster one after the other, and return the resulting objects."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from clusters.base.api import Cluster
from clusters.base.errors import Forbidden, Invalid, NotFound
from clusters.base.objects import CONFIGURATION, ROUTE, SERVICE, Key, Kind, Object, key_of, name_of, version_of
from serving.reconciler.actions import Action, Apply, Delete, Patch
from serving.reconciler.observe import World
from serving.reconciler.plan import Plan

FIELD_MANAGER = "knodel"
"""The name of this controller in `metadata.managedFields`."""


class OwnWrites:
    """Versions of objects that this process has already replaced, while its informers still show them.

    Every write carries the resourceVersion from which it was planned. A write that changed the object makes that
    version obsolete: a second write from it would be refused as a conflict, so it is not sent. The change that is on
    its way to the informer starts another pass over the Model.
    """

    def __init__(self) -> None:
        self._spent: dict[Key, dict[tuple[Kind, Key], str]] = {}

    def is_spent(self, model: Key, kind: Kind, key: Key, version: str) -> bool:
        """Return whether this process has changed the object since `version`; False for a new object."""
        return bool(version) and self._spent.get(model, {}).get((kind, key)) == version

    def record(self, model: Key, kind: Kind, key: Key, version: str, answer: Object) -> None:
        """Record a write that was planned from `version`. An answer with the same version changed nothing."""
        if version and version_of(answer) != version:
            self._spent.setdefault(model, {})[kind, key] = version

    def forget(self, model: Key) -> None:
        """Drop the records of a deleted Model."""
        self._spent.pop(model, None)


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


async def apply_plan(cluster: Cluster, plan: Plan, world: World, own: OwnWrites) -> ApplyOutcome:
    """Send every write of the plan. Raises what the cluster raises, except refusals (Invalid, Forbidden).

    A group of writes ends at one that was planned from an obsolete version (`OwnWrites`); the next pass continues.
    """
    refusals: list[WriteRefusal] = []
    model = key_of(world.model)
    for group in (plan.objects, plan.digests, *((mark,) for mark in plan.marks)):
        for action in group:
            if own.is_spent(model, action.kind, _key(action), action.version):
                break
            try:
                world = await _apply_action(cluster, action, world, own)
            except (Invalid, Forbidden) as error:
                causes = "; ".join(str(cause) for cause in error.causes) if isinstance(error, Invalid) else str(error)
                refusals.append(WriteRefusal(error.reason, f"{action.kind.kind} {_key(action).name}: {causes}"))
                break
    return ApplyOutcome(world, refusals[0] if refusals else None)


async def _apply_action(cluster: Cluster, action: Action, world: World, own: OwnWrites) -> World:
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
    own.record(key_of(world.model), action.kind, _key(action), action.version, answer)
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
