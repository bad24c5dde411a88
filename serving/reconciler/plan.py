"""Plan the writes that bring the objects of a Model closer to its spec. Pure.

    Service                                         standalone
    apply Service                                   apply Configurations: one for each variant, or NAME
    (from standalone: hand Configuration NAME and   (from a Service: take Configuration NAME and Route from it, then
     Route to the Service once it exists)            delete the childless Service)
                                                    apply Route
    then, in both shapes: delete Configurations without traffic, set the scaling policy on every PodAutoscaler, and
    protect the version to roll back to from Knative's garbage collection

The module `shape` decides between the two. A change of `spec.variants`, also by a rollback, is a change of traffic like
any other. The shape changes before or after the traffic, never in between:

    to variants      children are taken, the Service is deleted; the Route still leads to the old version; variants
                     start; traffic moves
    from variants    Configuration NAME starts under the Model; the Route still leads to the variants; when it is ready,
                     the Service is created, gets the children and moves the traffic, as between any two versions
    a failed version never gets traffic: the shape stays, and the old version continues to serve
    same spec again  its Revisions still exist in their Configurations: they become the newest version again, no new
                     ones are created, and the traffic moves at once

A Revision has the Service's label from the start (`serving.makers.knative`). So the Service's Route can later name
Revisions created while the Model was standalone: canary and rollback are the same in both shapes.

Each pass does what is possible now. What depends on an answer is left to the pass that observes it. An object that the
Model does not control is not changed, and is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autoscaler.types import POLICY_ANNOTATION, RESTART_ANNOTATION
from autoscaler.usage.meter import CANARY_ANNOTATION
from clusters.base.objects import (
    ANNOTATION_NO_GC,
    CONFIGURATION,
    MODEL,
    POD_AUTOSCALER,
    REVISION,
    ROUTE,
    SERVICE,
    Kind,
    Object,
    annotations_of,
    controller_of,
    is_controlled_by,
    key_of,
    name_of,
    uid_of,
)
from serving.makers import names
from serving.makers.knative import generation_of_version, make_gpu_annotations, make_policy
from serving.reconciler import digests
from serving.reconciler.actions import Action, Delete, Patch
from serving.reconciler.adapters import adapter_actions
from serving.reconciler.observe import World, has_taken_over
from serving.reconciler.preconditions import BlockedReason
from serving.reconciler.rollout.capacity import AS_SPECIFIED, Capacity, Replicas, plan_capacity, plan_return
from serving.reconciler.rollout.history import rollback_target
from serving.reconciler.rollout.split import Situation, Split, is_by_hand, is_canary, situation_of, split_in_force
from serving.reconciler.rollout.state import rollout_of
from serving.reconciler.rollout.versions import newest_last, shares_of, version_with, versions_of
from serving.reconciler.shape import shape_actions
from serving.types.annotations import ANNOTATION_PERCENT, ANNOTATION_RESTART
from serving.types.model import HistoryEntry, Model, history_of
from serving.types.rollout import Rollout
from serving.types.settings.settings import Settings


@dataclass(frozen=True, slots=True)
class ForeignObject:
    """An object of another owner with a name that the Model needs.

    `leaving`: it belonged to a deleted Model, and the cluster is about to collect it.
    """

    kind: Kind
    name: str
    leaving: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The writes of a pass, with the inputs from which they follow.

    `adapters`, `objects` and `digests` are ordered, and end at the first refusal. `marks` are independent of each
    other. A plan with `blocked` has no writes.
    """

    objects: tuple[Action, ...]
    marks: tuple[Action, ...]
    foreign: tuple[ForeignObject, ...]
    split: Split
    situation: Situation
    blocked: BlockedReason | None = None
    capacity: Capacity = AS_SPECIFIED
    digests: tuple[Action, ...] = ()
    adapters: tuple[Action, ...] = ()


def make_plan(model: Model, world: World, settings: Settings, blocked: BlockedReason | None = None) -> Plan:
    """Return the writes that are possible now; none when the objects match the spec or the Model is blocked."""
    situation = _situation(model, world, settings, history_of(model.object))
    split = split_in_force(model, situation)
    capacity = _capacity(model, world, situation)
    foreign = tuple(_foreign(model, world))
    if blocked is not None and not (blocked.new_only and situation.newest is not None):
        return Plan((), (), foreign, split, situation, blocked, capacity)
    return Plan(
        objects=()
        if foreign
        else (*shape_actions(model, world, settings, split), *_retired(model, world, split, situation)),
        marks=(*_policies(model, world, capacity, situation), *_collection_marks(world, situation)),
        foreign=foreign,
        split=split,
        situation=situation,
        capacity=capacity,
        digests=tuple(digests.record_actions(model, world)),
        adapters=tuple(adapter_actions(model, world, _newest_revisions(situation))),
    )


def _newest_revisions(situation: Situation) -> frozenset[str]:
    return frozenset() if situation.newest is None else frozenset(situation.newest.revisions.values())


def _situation(model: Model, world: World, settings: Settings, history: tuple[HistoryEntry, ...]) -> Situation:
    generation = generation_of_version(model, settings)
    known = [entry.revision for entry in history]
    versions = versions_of(world.revisions, known, digests.loaded_digests(world), digests.unheld_revisions(world))
    versions = newest_last(versions, _latest_created(model, world, generation))
    texts = {name: annotations_of(one).get(ANNOTATION_PERCENT, "") for name, one in world.configurations.items()}
    percents = {name: int(text) for name, text in texts.items() if text.isdecimal()}  # the last declared ones
    rollout = rollout_of(model.object)
    return situation_of(versions, generation, history, percents, rollout, by_hand=is_by_hand(model.spec))


def _capacity(model: Model, world: World, situation: Situation) -> Capacity:
    """Return the replicas that the versions of a rollout may have, from their PodAutoscalers.

    With a split in the spec there is no rollout to plan for. But a rollback, which is a pin in the spec, gives the
    stable version its replicas back as the judge does.
    """
    if is_by_hand(model.spec):
        return Capacity(plan_return(model.spec.scaling, situation))
    shares = shares_of((model.object.get("status") or {}).get("traffic") or (), situation.versions)
    statuses = {name_of(one): one.get("status") or {} for one in world.autoscalers}
    replicas = {
        name: Replicas(max(0, int(status.get("desiredScale") or 0)), int(status.get("actualScale") or 0))
        for name, status in statuses.items()
    }
    return plan_capacity(model.spec.rollout or Rollout(), model.spec.scaling, situation, shares, replicas)


def _latest_created(model: Model, world: World, generation: str) -> set[str]:
    """Return the Revisions of the spec's version; none while one of its Configurations does not have the version."""
    found = set()
    for name in names.configurations(model):
        configuration = world.configurations.get(name)
        if configuration is None or not has_taken_over(configuration, generation):
            return set()
        found.add(str(configuration["status"].get("latestCreatedRevisionName")))
    return found


def _foreign(model: Model, world: World) -> Iterator[ForeignObject]:
    wanted: list[tuple[Kind, Object | None]] = [(ROUTE, world.route)]
    if not model.spec.variants:
        wanted += [(SERVICE, world.service), (CONFIGURATION, world.configurations.get(names.configuration(model)))]
    wanted += [(CONFIGURATION, world.configurations.get(name)) for name in names.configurations(model)]
    seen: set[tuple[Kind, str]] = set()
    for kind, obj in wanted:
        if obj is None or world.is_ours(obj) or (kind, name_of(obj)) in seen:
            continue
        seen.add((kind, name_of(obj)))
        yield ForeignObject(kind, name_of(obj), _is_leaving(model, world, obj))


def _is_leaving(model: Model, world: World, obj: Object) -> bool:
    """Return whether the object belonged to a deleted Model of this name, or to its Service, and will be collected."""
    owner = controller_of(obj)
    if world.service is not None and owner is not None and owner["uid"] == uid_of(world.service):
        owner = controller_of(world.service)  # the object is deleted after its Service
    return owner is not None and owner["kind"] in (MODEL.kind, SERVICE.kind) and owner["name"] == model.name


def _retired(model: Model, world: World, split: Split, situation: Situation) -> Iterator[Action]:
    """Return deletions of former Configurations without traffic whose versions are not in the history.

    Others are kept: a new Configuration of the same name would number its Revisions from 1, and a name in the history
    would then mean two Revisions. The history may also have the name of a collected Revision.
    """
    known = {entry.revision for entry in history_of(world.model)}
    needed = _routed(world, split, situation)
    needed |= {name for name in world.configurations if any(names.is_revision_of(name, one) for one in known)}
    needed |= {name for version in situation.versions if version.revision in known for name in version.revisions}
    for name, live in world.configurations.items():
        if name not in names.configurations(model) and name not in needed and is_controlled_by(live, world.model):
            yield Delete(CONFIGURATION, key_of(live), uid_of(live))


def _routed(world: World, split: Split, situation: Situation) -> set[str]:
    """Return the Configurations with traffic: by the new split, by the Route's spec, and by its status."""
    route = world.route or {}
    requested, observed = (route.get("spec") or {}).get("traffic"), (route.get("status") or {}).get("traffic")
    entries = [*split.targets, *(requested or ()), *(observed or ())]
    found = {str(entry["configurationName"]) for entry in entries if entry.get("configurationName")}
    for entry in entries:
        version = version_with(situation.versions, entry.get("revisionName", ""))
        found |= set(version.revisions) if version is not None else set()
    return found


def _policies(model: Model, world: World, capacity: Capacity, situation: Situation) -> Iterator[Action]:
    """Return the annotations for the autoscaler: policy, mark of a canary, restart; one write for each revision."""
    unheld = digests.unheld_revisions(world)
    restart = annotations_of(model.object).get(ANNOTATION_RESTART) or None
    for autoscaler in world.autoscalers:
        concurrency = int((autoscaler.get("spec") or {}).get("containerConcurrency") or 0)
        scaling = capacity.scaling.get(name_of(autoscaler), model.spec.scaling)
        if name_of(autoscaler) in unheld:
            scaling = digests.single_replica(scaling)
        policy = make_policy(scaling, concurrency)
        canary = "true" if is_canary(model.spec, situation, name_of(autoscaler)) else None
        wanted = {
            POLICY_ANNOTATION: policy,
            CANARY_ANNOTATION: canary,
            RESTART_ANNOTATION: restart,
            **make_gpu_annotations(model.spec.gpu_share),
        }
        present = annotations_of(autoscaler)
        if any(present.get(name) != value for name, value in wanted.items()):
            yield Patch.of(POD_AUTOSCALER, autoscaler, {"metadata": {"annotations": wanted}})


def _collection_marks(world: World, situation: Situation) -> Iterator[Action]:
    """Return writes of `serving.knative.dev/no-gc`: only the target of a rollback has it.

    Knative does not copy this annotation to the Pod template.
    """
    traffic = (world.model.get("status") or {}).get("traffic") or ()
    target = rollback_target(history_of(world.model), shares_of(traffic, situation.versions))
    kept = version_with(situation.versions, target.revision) if target is not None else None
    for revision in world.revisions:
        wanted = kept is not None and name_of(revision) in kept
        if wanted != (annotations_of(revision).get(ANNOTATION_NO_GC) == "true"):
            patch = {"metadata": {"annotations": {ANNOTATION_NO_GC: "true" if wanted else None}}}
            yield Patch.of(REVISION, revision, patch)
