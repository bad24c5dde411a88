"""From a Model and its world to the writes that bring the world nearer to the Model. Pure.

    without variants                                with variants
    apply Service                                   apply one Configuration for each variant
    (from variants: hand Configuration NAME and     (from a Service: take Configuration NAME and Route from it, then
     Route to the Service once it exists)            delete the childless Service)
                                                    apply Route
    then, in both: delete Configurations that nothing leads to any more, put the scaling policy on every
    PodAutoscaler, keep the version to go back to from collection

Each pass does what can be done now; what depends on an answer is done by the pass that sees it. An object that the
Model does not control is left alone and reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from autoscaler.apis import POLICY_ANNOTATION
from clusters.objects import (
    ANNOTATION_NO_GC,
    CONFIGURATION,
    LABEL_SERVICE,
    MODEL,
    POD_AUTOSCALER,
    REVISION,
    ROUTE,
    SERVICE,
    Key,
    Kind,
    Object,
    annotations_of,
    controller_of,
    is_controlled_by,
    key_of,
    name_of,
    owner_reference,
    uid_of,
)
from serving.apis.annotations import ANNOTATION_APPLIED, LABEL_MODEL
from serving.apis.model import Model, history_of
from serving.apis.settings import Settings
from serving.reconciler.observe import World
from serving.resources import names
from serving.resources.knative import generation_of_version, make_configuration, make_route, make_service
from serving.resources.policy import make_policy, make_policy_patch
from serving.resources.targets import ALL, floating, merged
from serving.rollout.history import rollback_target
from serving.rollout.split import Situation, Split, situation_of, split_in_force
from serving.rollout.versions import Version, shares_of, version_with, versions_of

LABEL_SERVICE_UID = "serving.knative.dev/serviceUID"


@dataclass(frozen=True, slots=True)
class Apply:
    """Server-side apply of a whole object; `force` for one that is ours already, so that drift is mended."""

    kind: Kind
    object: Object
    force: bool


@dataclass(frozen=True, slots=True)
class Patch:
    """A merge patch of an object that Knative made."""

    kind: Kind
    key: Key
    patch: Object


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletion of exactly this object."""

    kind: Kind
    key: Key
    uid: str


Action = Apply | Patch | Delete


@dataclass(frozen=True, slots=True)
class Foreign:
    """An object that bears a name we want and is not under the Model; `leaving` when it goes with a predecessor."""

    kind: Kind
    name: str
    leaving: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """`objects` in this order, the first refusal ends them; `marks` are independent of each other."""

    objects: tuple[Action, ...]
    marks: tuple[Action, ...]
    foreign: tuple[Foreign, ...]
    split: Split
    situation: Situation


def make_plan(model: Model, world: World, settings: Settings) -> Plan:
    """All that is to be written now; empty when the world is as the Model wants it."""
    history = history_of(model.object)
    versions = versions_of(world.revisions, [entry.revision for entry in history])
    situation = situation_of(versions, generation_of_version(model, settings), history)
    split = split_in_force(model, situation)
    foreign = tuple(_foreign(model, world))
    shape = _with_variants if model.spec.variants else _with_service
    return Plan(
        objects=(*shape(model, world, settings, split), *_retired(model, world, split, situation))
        if not foreign
        else (),
        marks=(*_policies(model, world), *_collection_marks(world, situation)),
        foreign=foreign,
        split=split,
        situation=situation,
    )


def differs(wanted: Object, live: Object) -> bool:
    """Whether `wanted` has to be applied: it is not what was applied last, or somebody changed it since."""
    if annotations_of(wanted).get(ANNOTATION_APPLIED) != annotations_of(live).get(ANNOTATION_APPLIED):
        return True
    owners = wanted["metadata"].get("ownerReferences") or ()
    present = {reference["uid"] for reference in live["metadata"].get("ownerReferences") or ()}
    if any(owner["uid"] not in present for owner in owners):
        return True
    metadata = {key: value for key, value in wanted["metadata"].items() if key != "ownerReferences"}
    return not _within(metadata, live["metadata"]) or not _within(wanted["spec"], live.get("spec"))


def _within(part: object, whole: object) -> bool:
    """Whether `whole` says all that `part` says; items of lists in their order, more fields in them allowed."""
    if isinstance(part, Mapping):
        return isinstance(whole, Mapping) and all(_within(value, whole.get(key)) for key, value in part.items())
    if isinstance(part, list):
        if not isinstance(whole, list) or len(part) != len(whole):
            return False
        return all(_within(one, other) for one, other in zip(part, whole, strict=True))
    return part == whole


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
        yield Foreign(kind, name_of(obj), _is_leaving(model, obj))


def _is_leaving(model: Model, obj: Object) -> bool:
    """Whether it belonged to a deleted Model of this name, or to its Service: the cluster is about to collect it."""
    owner = controller_of(obj)
    return owner is not None and owner["kind"] in (MODEL.kind, SERVICE.kind) and owner["name"] == model.name


def _with_service(model: Model, world: World, settings: Settings, split: Split) -> Iterator[Action]:
    live = world.service
    wanted = make_service(model, settings, _targets(model, live, split))
    if live is None:
        yield Apply(SERVICE, wanted, force=False)
        return
    if differs(wanted, live):
        yield Apply(SERVICE, wanted, force=True)
    for kind, child in ((CONFIGURATION, world.configurations.get(names.configuration(model))), (ROUTE, world.route)):
        if child is not None and is_controlled_by(child, world.model):
            labels = {LABEL_MODEL: model.name, LABEL_SERVICE: name_of(live)}
            yield _hand_over(kind, child, labels, owner_reference(SERVICE, live))


def _with_variants(model: Model, world: World, settings: Settings, split: Split) -> Iterator[Action]:
    for variant in model.spec.variants:
        wanted = make_configuration(model, variant, settings)
        live = world.configurations.get(name_of(wanted))
        if live is None or differs(wanted, live):
            yield Apply(CONFIGURATION, wanted, force=live is not None)
    if world.has_service and world.service is not None:
        yield from _take_from_service(model, world, world.service)
        return
    route = make_route(model, _targets(model, world.route, split))
    if world.route is None or differs(route, world.route):
        yield Apply(ROUTE, route, force=world.route is not None)


def _take_from_service(model: Model, world: World, service: Object) -> Iterator[Action]:
    """Children first, so that no moment exists at which deleting the Service would take them along."""
    children = ((CONFIGURATION, world.configurations.get(names.configuration(model))), (ROUTE, world.route))
    for kind, child in children:
        if child is not None and is_controlled_by(child, service):
            labels = {LABEL_MODEL: model.name, LABEL_SERVICE: None, LABEL_SERVICE_UID: None}
            yield _hand_over(kind, child, labels, owner_reference(MODEL, world.model))
    if all(child is not None for _, child in children) or not service.get("status"):
        yield Delete(SERVICE, key_of(service), uid_of(service))


def _hand_over(kind: Kind, child: Object, labels: Mapping[str, str | None], owner: Object) -> Patch:
    """Label and owner in one patch: Knative refuses the label without a Service as owner."""
    return Patch(kind, key_of(child), {"metadata": {"labels": dict(labels), "ownerReferences": [owner]}})


def _targets(model: Model, live: Object | None, split: Split) -> Sequence[Object]:
    """The split in force; while it names revisions that do not exist, what there is stays."""
    if not split.unknown:
        return split.targets
    present = live["spec"].get("traffic") if live is not None else None
    return present or merged(floating(model, ALL))


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


def _policies(model: Model, world: World) -> Iterator[Action]:
    for autoscaler in world.autoscalers:
        concurrency = int((autoscaler.get("spec") or {}).get("containerConcurrency") or 0)
        policy = make_policy(model.spec.scaling, concurrency)
        if annotations_of(autoscaler).get(POLICY_ANNOTATION) != policy:
            yield Patch(POD_AUTOSCALER, key_of(autoscaler), make_policy_patch(policy))


def _collection_marks(world: World, situation: Situation) -> Iterator[Action]:
    """`serving.knative.dev/no-gc` on the version to go back to, no other; Knative keeps it off the pod template."""
    kept = _kept_version(world, situation)
    for revision in world.revisions:
        wanted = kept is not None and name_of(revision) in kept
        if wanted != (annotations_of(revision).get(ANNOTATION_NO_GC) == "true"):
            patch = {"metadata": {"annotations": {ANNOTATION_NO_GC: "true" if wanted else None}}}
            yield Patch(REVISION, key_of(revision), patch)
