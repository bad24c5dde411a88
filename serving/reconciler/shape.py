"""Plan the writes for the two shapes of a Model in the cluster, and for the change between them. Pure.

    shape        objects                                                     while traffic leads
    Service      a Knative Service with its Configuration NAME and Route     to Configuration NAME only
    standalone   Configurations (one for each variant, or NAME) and a        to variants, or there are variants
                 Route under the Model itself

The shape follows the traffic, not only `spec.variants`. The Route of a Service may name only Revisions with the
Service's label (knative/serving `pkg/reconciler/route/traffic`), and must lead to the Service's Configuration.
Otherwise the Service would annotate its Configuration with the Route, the labeler would remove that annotation, and
both would write forever. A target of 0 % would end that. But it needs a ready Revision, which a new or failed version
does not have, and it would keep replicas of that Revision. So a Model that lost its variants stays standalone until
Configuration NAME has all traffic, and a Model that is rolled back to variants becomes standalone.
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
from serving.reconciler.actions import Action, Apply, Delete, Patch, needs_apply
from serving.reconciler.observe import World
from serving.reconciler.rollout.split import Split
from serving.types.annotations import LABEL_MODEL
from serving.types.model import Model
from serving.types.settings.settings import Settings

LABEL_SERVICE_UID = "serving.knative.dev/serviceUID"


def shape_actions(model: Model, world: World, settings: Settings, split: Split) -> Iterator[Action]:
    """Return the writes for the shape that the Model needs now."""
    targets = _targets(model, world, split)
    if not model.spec.variants and all(_is_own(model, target) for target in targets):
        return _with_service(model, world, settings, targets)
    return _standalone(model, world, settings, targets)


def _targets(model: Model, world: World, split: Split) -> Sequence[Object]:
    """Return the targets of the split; the present targets while the split has revisions that do not exist."""
    if not split.unknown:
        return split.targets
    live = world.service if world.has_service else world.route
    present = live["spec"].get("traffic") if live is not None else None
    return present or merged(floating(model, ALL))


def _is_own(model: Model, target: Object) -> bool:
    """Return whether the target leads to the Configuration of the Model's Service."""
    own = names.configuration(model)
    if target.get("revisionName"):
        return names.is_revision_of(own, target["revisionName"])
    return bool(target.get("configurationName", own) == own)


def _with_service(model: Model, world: World, settings: Settings, targets: Sequence[Object]) -> Iterator[Action]:
    """Return the write of the Service, then one patch for each child that is handed over to it.

    Until then, the Service reports `NotOwned` for the children, and does not change them.
    """
    live = world.service
    wanted = make_service(model, settings, targets)
    if live is None:
        yield Apply.over(SERVICE, wanted, live)
        return
    if needs_apply(wanted, live):
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
            continue  # an object has one controller: the Service must release it first
        if live is None or needs_apply(wanted, live):
            yield Apply.over(CONFIGURATION, wanted, live)
    if service is not None:
        yield from _take_from_service(model, world, service)
        return
    route = make_route(model, targets)
    if world.route is None or needs_apply(route, world.route):
        yield Apply.over(ROUTE, route, world.route)


def _take_from_service(model: Model, world: World, service: Object) -> Iterator[Action]:
    """Take the children first, so that deleting the Service never deletes them."""
    labels = {LABEL_MODEL: model.name, LABEL_SERVICE: None, LABEL_SERVICE_UID: None}
    children = _children(model, world)
    for kind, child in children:
        if child is not None and is_controlled_by(child, service):
            yield _hand_over(kind, child, labels, owner_reference(MODEL, world.model))
    if all(child is not None for _, child in children) or not service.get("status"):
        yield Delete(SERVICE, key_of(service), uid_of(service))


def _children(model: Model, world: World) -> tuple[tuple[Kind, Object | None], ...]:
    """Return the Configuration and Route with the names of a Service's children, whatever owns them now."""
    return ((CONFIGURATION, world.configurations.get(names.configuration(model))), (ROUTE, world.route))


def _hand_over(kind: Kind, child: Object, labels: Mapping[str, str | None], owner: Object) -> Patch:
    """Return one patch of label and owner: Knative refuses the label without a Service as owner. Other owners stay."""
    others = [one for one in child["metadata"].get("ownerReferences") or () if not one.get("controller")]
    return Patch.of(kind, child, {"metadata": {"labels": dict(labels), "ownerReferences": [*others, owner]}})
