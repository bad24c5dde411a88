"""The two shapes in which a Model stands in the cluster, and the writes for each and for the way between them. Pure.

    shape        objects                                                     while traffic leads
    Service      a Knative Service with its Configuration NAME and Route     to Configuration NAME only
    standalone   Configurations (one for each variant, or NAME) and a        to variants, or there are variants
                 Route under the Model itself

The shape follows the traffic, not `spec.variants` alone. A Route that a Service owns may name Revisions with the
Service's label only (knative/serving `pkg/reconciler/route/traffic`), and must lead to the Service's Configuration: the
Service notes the Route on it, the labeler wipes the note off what no target leads to, and they would write against
each other for ever. A target of 0 % would end that, but it needs a ready Revision, which a new or broken version has
not, and it would keep that Revision's replicas up. So a Model that lost its variants stays standalone until
Configuration NAME has taken over all traffic, and one that is rolled back to variants becomes standalone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from clusters.base.objects import (
    CONFIGURATION,
    LABEL_SERVICE,
    MODEL,
    ROUTE,
    SERVICE,
    Kind,
    Object,
    is_controlled_by,
    key_of,
    name_of,
    owner_reference,
    uid_of,
)
from serving.makers import names
from serving.makers.knative import make_configurations, make_route, make_service
from serving.makers.targets import ALL, floating, merged
from serving.reconciler.actions import Action, Apply, Delete, Patch, differs
from serving.reconciler.observe import World
from serving.reconciler.rollout.split import Split
from serving.types.annotations import LABEL_MODEL
from serving.types.model import Model
from serving.types.settings.settings import Settings

LABEL_SERVICE_UID = "serving.knative.dev/serviceUID"


def shape_actions(model: Model, world: World, settings: Settings, split: Split) -> Iterator[Action]:
    """What is to be written for the shape that the Model needs now."""
    targets = _targets(model, world, split)
    if not model.spec.variants and all(_is_own(model, target) for target in targets):
        return _with_service(model, world, settings, targets)
    return _standalone(model, world, settings, targets)


def _targets(model: Model, world: World, split: Split) -> Sequence[Object]:
    """The split in force; while it names revisions that do not exist, what there is stays."""
    if not split.unknown:
        return split.targets
    live = world.service if world.has_service else world.route
    present = live["spec"].get("traffic") if live is not None else None
    return present or merged(floating(model, ALL))


def _is_own(model: Model, target: Object) -> bool:
    """Whether the target leads to the Configuration that a Service of the Model has."""
    own = names.configuration(model)
    if target.get("revisionName"):
        return names.is_revision_of(own, target["revisionName"])
    return bool(target.get("configurationName", own) == own)


def _with_service(model: Model, world: World, settings: Settings, targets: Sequence[Object]) -> Iterator[Action]:
    """The Service first, which reports `NotOwned` and touches nothing; then the children, each with one patch."""
    live = world.service
    wanted = make_service(model, settings, targets)
    if live is None:
        yield Apply.over(SERVICE, wanted, live)
        return
    if differs(wanted, live):
        yield Apply.over(SERVICE, wanted, live)
    labels = {LABEL_MODEL: model.name, LABEL_SERVICE: name_of(live)}
    for kind, child in _children(model, world):
        if child is not None and is_controlled_by(child, world.model):
            yield _hand_over(kind, child, labels, owner_reference(SERVICE, live))


def _standalone(model: Model, world: World, settings: Settings, targets: Sequence[Object]) -> Iterator[Action]:
    service = world.service if world.has_service else None
    for wanted in make_configurations(model, settings):
        live = world.configurations.get(name_of(wanted))
        if service is not None and name_of(wanted) == names.configuration(model):
            continue  # an object has one controller: it is taken from the Service first
        if live is None or differs(wanted, live):
            yield Apply.over(CONFIGURATION, wanted, live)
    if service is not None:
        yield from _take_from_service(model, world, service)
        return
    route = make_route(model, targets)
    if world.route is None or differs(route, world.route):
        yield Apply.over(ROUTE, route, world.route)


def _take_from_service(model: Model, world: World, service: Object) -> Iterator[Action]:
    """Children first, so that no moment exists at which deleting the Service would take them along."""
    labels = {LABEL_MODEL: model.name, LABEL_SERVICE: None, LABEL_SERVICE_UID: None}
    children = _children(model, world)
    for kind, child in children:
        if child is not None and is_controlled_by(child, service):
            yield _hand_over(kind, child, labels, owner_reference(MODEL, world.model))
    if all(child is not None for _, child in children) or not service.get("status"):
        yield Delete(SERVICE, key_of(service), uid_of(service))


def _children(model: Model, world: World) -> tuple[tuple[Kind, Object | None], ...]:
    """Configuration and Route of the name that a Service gives its children, whoever owns them now."""
    return ((CONFIGURATION, world.configurations.get(names.configuration(model))), (ROUTE, world.route))


def _hand_over(kind: Kind, child: Object, labels: Mapping[str, str | None], owner: Object) -> Patch:
    """Label and owner in one patch: Knative refuses the label without a Service as owner. Other owners stay."""
    others = [one for one in child["metadata"].get("ownerReferences") or () if not one.get("controller")]
    return Patch.of(kind, child, {"metadata": {"labels": dict(labels), "ownerReferences": [*others, owner]}})
