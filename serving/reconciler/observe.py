"""Observe the objects of a Model, as the informers have them at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from clusters.base.objects import (
    CONFIGURATION,
    LABEL_CONFIGURATION,
    MODEL,
    NAMESPACE,
    POD_AUTOSCALER,
    REVISION,
    ROUTE,
    SERVICE,
    Object,
    generation_of,
    is_controlled_by,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
)
from clusters.runtime.informer import Informer, Informers
from serving.makers import names
from serving.reconciler import preconditions
from serving.types.annotations import LABEL_GENERATION
from serving.types.model import Model

KINDS = (MODEL, SERVICE, CONFIGURATION, ROUTE, REVISION, POD_AUTOSCALER, NAMESPACE)
"""The kinds that the reconciler watches."""

INDEX = "knodel.configuration"
"""Index of Revisions and PodAutoscalers by their Configuration."""


@dataclass(frozen=True, slots=True)
class World:
    """The objects of one Model.

    `configurations` are by name, and include those of other owners with a name that the Model needs. `revisions` and
    `autoscalers` are those of the Configurations that the Model controls.
    """

    model: Object
    service: Object | None = None
    route: Object | None = None
    configurations: Mapping[str, Object] = field(default_factory=dict)
    revisions: tuple[Object, ...] = ()
    autoscalers: tuple[Object, ...] = ()

    def is_ours(self, obj: Object) -> bool:
        """Return whether the Model, or its own Service, controls `obj`."""
        if is_controlled_by(obj, self.model):
            return True
        return self.has_service and self.service is not None and is_controlled_by(obj, self.service)

    @property
    def has_service(self) -> bool:
        """Return whether the Model controls a Service."""
        return self.service is not None and is_controlled_by(self.service, self.model)


def prepare_informers(informers: Informers) -> None:
    """Create the informers of `KINDS` and their indexes. Call it before they run."""
    for kind in KINDS:
        informers[kind]  # access creates it
    preconditions.add_claims_index(informers[MODEL])

    def by_configuration(obj: Object) -> Iterable[str]:
        configuration = labels_of(obj).get(LABEL_CONFIGURATION)
        return () if configuration is None else (f"{namespace_of(obj)}/{configuration}",)

    for kind in (REVISION, POD_AUTOSCALER):
        informers[kind].add_index(INDEX, by_configuration)


def observe(informers: Informers, model: Model) -> World:
    """Return the objects of `model` in the informers."""
    name, namespace = model.name, model.namespace
    wanted = {names.configuration(model), *names.configurations(model)}
    configurations = {name_of(obj): obj for obj in informers[CONFIGURATION].indexed("owner", model.uid)}
    for other in wanted - configurations.keys():
        found = informers[CONFIGURATION].get(other, namespace)
        if found is not None:
            configurations[other] = found
    world = World(
        model=model.object,
        service=_present(informers[SERVICE].get(name, namespace)),
        route=_present(informers[ROUTE].get(name, namespace)),
        configurations={name: obj for name, obj in sorted(configurations.items()) if not is_deleting(obj)},
    )
    ours = [f"{namespace}/{name}" for name, obj in world.configurations.items() if world.is_ours(obj)]
    revisions = _children(informers[REVISION], ours)
    return replace(world, revisions=revisions, autoscalers=_children(informers[POD_AUTOSCALER], ours))


def has_observed(obj: Object) -> bool:
    """Return whether the object's status is of its present spec."""
    return (obj.get("status") or {}).get("observedGeneration") == generation_of(obj)


def has_taken_over(configuration: Object, generation: str) -> bool:
    """Return whether the Configuration has the version with this label, and its status is of that version."""
    template = configuration["spec"].get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    return labels.get(LABEL_GENERATION) == generation and has_observed(configuration)


def _children(informer: Informer, configurations: list[str]) -> tuple[Object, ...]:
    found = [obj for one in configurations for obj in informer.indexed(INDEX, one) if not is_deleting(obj)]
    return tuple(sorted(found, key=name_of))


def _present(obj: Object | None) -> Object | None:
    return None if obj is None or is_deleting(obj) else obj
