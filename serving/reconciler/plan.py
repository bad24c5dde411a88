"""From a Model and its world to the writes that bring the world nearer to the Model. Pure.

    Service                                         standalone
    apply Service                                   apply Configurations: one for each variant, or NAME
    (from standalone: hand Configuration NAME and   (from a Service: take Configuration NAME and Route from it, then
     Route to the Service once it exists)            delete the childless Service)
                                                    apply Route
    then, in both: delete Configurations that nothing leads to any more, put the scaling policy on every
    PodAutoscaler, keep the version to go back to from collection

Which shape: `reconciler.shape`. A change of `spec.variants`, also by a rollback, is a change of traffic like any other,
and the change of shape comes before or after it, never in its middle:

    to variants      children taken, Service deleted; Route still on the old version; variants come up; traffic moves
    from variants    Configuration NAME comes up under the Model; Route still on the variants; it is ready: the Service
                     is made, gets the children and moves the traffic, as it would between any two versions
    a broken version never gets traffic, so the shape stays as it was, and the old version serves on
    same spec again  its Revisions still stand in their Configurations: they are the newest version once more, no new
                     ones are made, and the traffic moves at once

A Revision bears the Service's label from birth (`resources.knative`), so those made while the Model was standalone can
be named by the Service's Route later: canary and rollback work alike in both shapes.

Each pass does what can be done now; what depends on an answer is done by the pass that sees it. An object that the
Model does not control is left alone and reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autoscaler.types import POLICY_ANNOTATION
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
from serving.makers.knative import generation_of_version
from serving.makers.policy import make_policy, make_policy_patch
from serving.reconciler.actions import Action, Delete, Patch
from serving.reconciler.digests import alone, loaded, recording, unheld
from serving.reconciler.observe import World, has_taken_over
from serving.reconciler.preconditions import Obstacle
from serving.reconciler.rollout.canary import is_on_trial
from serving.reconciler.rollout.capacity import AS_SPECIFIED, Capacity, Replicas, plan_capacity, plan_return
from serving.reconciler.rollout.history import rollback_target
from serving.reconciler.rollout.split import Situation, Split, is_by_hand, situation_of, split_in_force
from serving.reconciler.rollout.state import rollout_of
from serving.reconciler.rollout.versions import Version, newest_last, shares_of, version_with, versions_of
from serving.reconciler.shape import shape_actions
from serving.types.annotations import ANNOTATION_PERCENT
from serving.types.model import HistoryEntry, Model, history_of
from serving.types.rollout import Rollout
from serving.types.settings.settings import Settings


@dataclass(frozen=True, slots=True)
class Foreign:
    """An object that bears a name we want and is not under the Model; `leaving` when it goes with a predecessor."""

    kind: Kind
    name: str
    leaving: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """`objects` in this order, the first refusal ends them, `digests` likewise; `marks` are independent of each other.

    With an `obstacle` in its way nothing is to be written: the Model is refused as a door would refuse it.
    """

    objects: tuple[Action, ...]
    marks: tuple[Action, ...]
    foreign: tuple[Foreign, ...]
    split: Split
    situation: Situation
    obstacle: Obstacle | None = None
    capacity: Capacity = AS_SPECIFIED
    digests: tuple[Action, ...] = ()


def make_plan(model: Model, world: World, settings: Settings, obstacle: Obstacle | None = None) -> Plan:
    """All that is to be written now; empty when the world is as the Model wants it, or there is an obstacle."""
    situation = _situation(model, world, settings, history_of(model.object))
    split = split_in_force(model, situation)
    capacity = _capacity(model, world, situation)
    foreign = tuple(_foreign(model, world))
    if obstacle is not None and not (obstacle.of_new and situation.newest is not None):
        return Plan((), (), foreign, split, situation, obstacle, capacity)
    return Plan(
        objects=()
        if foreign
        else (*shape_actions(model, world, settings, split), *_retired(model, world, split, situation)),
        marks=(*_policies(model, world, capacity, situation), *_collection_marks(world, situation)),
        foreign=foreign,
        split=split,
        situation=situation,
        capacity=capacity,
        digests=tuple(recording(model, world)),
    )


def _situation(model: Model, world: World, settings: Settings, history: tuple[HistoryEntry, ...]) -> Situation:
    generation = generation_of_version(model, settings)
    versions = versions_of(world.revisions, [entry.revision for entry in history], loaded(world), unheld(world))
    versions = newest_last(versions, _latest_created(model, world, generation))
    percents, rollout, by_hand = _last_percents(world), rollout_of(model.object), is_by_hand(model.spec)
    return situation_of(versions, generation, history, percents, rollout, by_hand=by_hand)


def _capacity(model: Model, world: World, situation: Situation) -> Capacity:
    """What the versions of a rollout may have, from what their PodAutoscalers say; traffic by hand is no rollout's.

    But a rollback by hand, a pin, gives the stable version its traffic back as the judge does.
    """
    if is_by_hand(model.spec):
        return Capacity(plan_return(model.spec.scaling, situation))
    shares = shares_of((model.object.get("status") or {}).get("traffic") or (), situation.versions)
    return plan_capacity(model.spec.rollout or Rollout(), model.spec.scaling, situation, shares, _replicas(world))


def _replicas(world: World) -> dict[str, Replicas]:
    statuses = {name_of(one): one.get("status") or {} for one in world.autoscalers}
    return {
        name: Replicas(max(0, int(status.get("desiredScale") or 0)), int(status.get("actualScale") or 0))
        for name, status in statuses.items()
    }


def _latest_created(model: Model, world: World, generation: str) -> set[str]:
    """What the Configurations made of the spec's version; nothing while one of them has not taken it over."""
    found = set()
    for name in names.configurations(model):
        configuration = world.configurations.get(name)
        if configuration is None or not has_taken_over(configuration, generation):
            return set()
        found.add(str(configuration["status"].get("latestCreatedRevisionName")))
    return found


def _last_percents(world: World) -> Mapping[str, int]:
    """The percent last declared for each variant that there is or was; what is no number was not written by us."""
    texts = {name: annotations_of(one).get(ANNOTATION_PERCENT, "") for name, one in world.configurations.items()}
    return {name: int(text) for name, text in texts.items() if text.isdecimal()}


def _foreign(model: Model, world: World) -> Iterator[Foreign]:
    wanted: list[tuple[Kind, Object | None]] = [(ROUTE, world.route)]
    if not model.spec.variants:
        wanted += [(SERVICE, world.service), (CONFIGURATION, world.configurations.get(names.configuration(model)))]
    wanted += [(CONFIGURATION, world.configurations.get(name)) for name in names.configurations(model)]
    seen: set[tuple[Kind, str]] = set()
    for kind, obj in wanted:
        if obj is None or world.is_ours(obj) or (kind, name_of(obj)) in seen:
            continue
        seen.add((kind, name_of(obj)))
        yield Foreign(kind, name_of(obj), _is_leaving(model, world, obj))


def _is_leaving(model: Model, world: World, obj: Object) -> bool:
    """Whether it belonged to a deleted Model of this name, or to its Service: the cluster is about to collect it."""
    owner = controller_of(obj)
    if world.service is not None and owner is not None and owner["uid"] == uid_of(world.service):
        owner = controller_of(world.service)  # it stays as long as its Service does
    return owner is not None and owner["kind"] in (MODEL.kind, SERVICE.kind) and owner["name"] == model.name


def _retired(model: Model, world: World, split: Split, situation: Situation) -> Iterator[Action]:
    """Configurations that the Model has no more, once no traffic leads to them and no history tells of them.

    While it does, they stay: one made again would number its Revisions from 1, and names would mean two things.
    """
    needed = _routed(world, split, situation) | _remembered(world, situation)
    for name, live in world.configurations.items():
        if name not in names.configurations(model) and name not in needed and is_controlled_by(live, world.model):
            yield Delete(CONFIGURATION, key_of(live), uid_of(live))


def _routed(world: World, split: Split, situation: Situation) -> set[str]:
    """Configurations that traffic leads to: as wished, as the Route asks for, and as it was last seen."""
    route = world.route or {}
    asked, seen = (route.get("spec") or {}).get("traffic"), (route.get("status") or {}).get("traffic")
    entries = [*split.targets, *(asked or ()), *(seen or ())]
    found = {str(entry["configurationName"]) for entry in entries if entry.get("configurationName")}
    for entry in entries:
        version = version_with(situation.versions, entry.get("revisionName", ""))
        found |= set(version.revisions) if version is not None else set()
    return found


def _remembered(world: World, situation: Situation) -> set[str]:
    """Configurations of versions that the history tells of, also by the bare name of a collected Revision."""
    told = {entry.revision for entry in history_of(world.model)}
    found = {name for name in world.configurations if any(names.is_revision_of(name, one) for one in told)}
    return found | {name for version in situation.versions if version.revision in told for name in version.revisions}


def _kept_version(world: World, situation: Situation) -> Version | None:
    """What `rollback` would go to."""
    traffic = (world.model.get("status") or {}).get("traffic") or ()
    target = rollback_target(history_of(world.model), shares_of(traffic, situation.versions))
    return version_with(situation.versions, target.revision) if target is not None else None


def _policies(model: Model, world: World, capacity: Capacity, situation: Situation) -> Iterator[Action]:
    """The scaling policy, and whether the replicas are a canary's: both for the autoscaler, in one write."""
    open_revisions = unheld(world)
    for autoscaler in world.autoscalers:
        concurrency = int((autoscaler.get("spec") or {}).get("containerConcurrency") or 0)
        scaling = capacity.scaling.get(name_of(autoscaler), model.spec.scaling)
        if name_of(autoscaler) in open_revisions:
            scaling = alone(scaling)
        policy = make_policy(scaling, concurrency)
        canary = "true" if is_on_trial(model.spec, situation, name_of(autoscaler)) else None
        said = annotations_of(autoscaler)
        if said.get(POLICY_ANNOTATION) != policy or said.get(CANARY_ANNOTATION) != canary:
            yield Patch.of(POD_AUTOSCALER, autoscaler, make_policy_patch(policy, canary=canary))


def _collection_marks(world: World, situation: Situation) -> Iterator[Action]:
    """`serving.knative.dev/no-gc` on the version to go back to, no other; Knative keeps it off the pod template."""
    kept = _kept_version(world, situation)
    for revision in world.revisions:
        wanted = kept is not None and name_of(revision) in kept
        if wanted != (annotations_of(revision).get(ANNOTATION_NO_GC) == "true"):
            patch = {"metadata": {"annotations": {ANNOTATION_NO_GC: "true" if wanted else None}}}
            yield Patch.of(REVISION, revision, patch)
