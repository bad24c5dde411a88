"""The Service reconciler: create the Configuration and the Route.

Source: knative/serving `pkg/reconciler/service`. The Service owns the spec, labels and annotations of its children, and
overwrites other changes to them.
"""

from __future__ import annotations

from clusters.base.clock import Clock
from clusters.base.objects import (
    CONFIGURATION,
    LABEL_SERVICE,
    ROUTE,
    SERVICE,
    Key,
    Object,
    annotations_of,
    generation_of,
    is_controlled_by,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
    uid_of,
)
from clusters.embedded.knative import defaults, names
from clusters.embedded.knative.client import CachedClient
from clusters.embedded.knative.conditions import TRUE
from clusters.embedded.knative.lifecycle import ROUTES_READY, ServiceStatus
from clusters.runtime.controller import Controller

_NOT_FOR_CONFIGURATION = (names.ANNOTATION_LAST_APPLIED, names.ANNOTATION_ROLLOUT_DURATION)


class ServiceReconciler:
    """Create or update both children of a Service, and report their status."""

    def __init__(self, client: CachedClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    def controller(self) -> Controller:
        """Return the controller. Children have the name of the Service, so one with another owner triggers it, too."""
        controller = Controller("knative service", self.reconcile)
        controller.watches(self._client.informer(SERVICE))
        for kind in (CONFIGURATION, ROUTE):
            controller.watches_mapped(self._client.informer(kind), lambda child: [key_of(child)])
        return controller

    async def reconcile(self, key: Key) -> None:
        """Reconcile a Service."""
        service = self._client.get(SERVICE, key.name, key.namespace)
        if service is None or is_deleting(service):
            return
        status = ServiceStatus(service)
        await self._children(service, status)
        await self._client.update_status(SERVICE, service, status.result(self._clock.now()))

    async def _children(self, service: Object, status: ServiceStatus) -> None:
        configuration = await self._configuration(service)
        if not is_controlled_by(configuration, service):
            status.mark_configuration_not_owned(names.configuration(name_of(service)))
            return
        if is_observed(configuration):
            status.propagate_configuration_status(configuration)
        else:
            status.mark_configuration_not_reconciled()
        route = await self._route(service)
        if not is_controlled_by(route, service):
            status.mark_route_not_owned(names.route(name_of(service)))
            return
        if is_observed(route):
            status.propagate_route_status(route)
        else:
            status.mark_route_not_reconciled()
        if status.conditions.status(ROUTES_READY) == TRUE and not is_migrated(route, configuration):
            status.mark_route_not_yet_ready()

    async def _configuration(self, service: Object) -> Object:
        name, namespace = names.configuration(name_of(service)), namespace_of(service)
        have = self._client.get(CONFIGURATION, name, namespace)
        want = make_configuration(service, have)
        if have is None:
            return await self._client.create(CONFIGURATION, want, SERVICE, service)
        if not is_controlled_by(have, service):
            return have
        return await self._client.update(CONFIGURATION, have, _owned_fields(want))

    async def _route(self, service: Object) -> Object:
        name, namespace = names.route(name_of(service)), namespace_of(service)
        have = self._client.get(ROUTE, name, namespace)
        want = make_route(service)
        if have is None:
            return await self._client.create(ROUTE, want, SERVICE, service)
        if not is_controlled_by(have, service):
            return have
        return await self._client.update(ROUTE, have, _owned_fields(want))


def make_configuration(service: Object, existing: Object | None) -> Object:
    """Return the Configuration of a Service. The Routes in the annotation of an existing one are kept."""
    routes = {names.route(name_of(service)), *(names.routes_of(existing) if existing is not None else ())}
    annotations = {key: value for key, value in annotations_of(service).items() if key not in _NOT_FOR_CONFIGURATION}
    annotations[names.ANNOTATION_ROUTES] = ",".join(sorted(routes))
    return {
        "apiVersion": CONFIGURATION.api_version,
        "kind": CONFIGURATION.kind,
        "metadata": {
            "name": names.configuration(name_of(service)),
            "namespace": namespace_of(service),
            "labels": {
                **labels_of(service),
                LABEL_SERVICE: name_of(service),
                names.LABEL_SERVICE_UID: uid_of(service),
            },
            "annotations": annotations,
            "ownerReferences": [owner_reference(SERVICE, service)],
        },
        "spec": {"template": service["spec"]["template"]},
    }


def make_route(service: Object) -> Object:
    """Return the Route of a Service: its traffic, with the Configuration where no Revision is named."""
    configuration = names.configuration(name_of(service))
    traffic = [
        target if target.get("revisionName") else {**target, "configurationName": configuration}
        for target in defaults.traffic(service["spec"].get("traffic"))
    ]
    annotations = annotations_of(service).items()
    return {
        "apiVersion": ROUTE.api_version,
        "kind": ROUTE.kind,
        "metadata": {
            "name": names.route(name_of(service)),
            "namespace": namespace_of(service),
            "labels": {**labels_of(service), LABEL_SERVICE: name_of(service)},
            "annotations": {key: value for key, value in annotations if key != names.ANNOTATION_LAST_APPLIED},
            "ownerReferences": [owner_reference(SERVICE, service)],
        },
        "spec": {"traffic": traffic},
    }


def is_observed(obj: Object) -> bool:
    """Return whether the status is that of the present generation."""
    return (obj.get("status") or {}).get("observedGeneration") == generation_of(obj)


def is_migrated(route: Object, configuration: Object) -> bool:
    """Return whether the Route's traffic is that of its spec, with the Configuration's latest ready Revision."""
    latest = (configuration.get("status") or {}).get("latestReadyRevisionName")
    wanted = []
    for target in defaults.traffic(route["spec"].get("traffic")):
        ours = target.get("configurationName") == name_of(configuration)
        revision = latest if ours else target.get("revisionName")
        wanted.append((revision, target.get("percent"), target.get("tag")))
    present = (route.get("status") or {}).get("traffic") or ()
    return wanted == [(target.get("revisionName"), target.get("percent"), target.get("tag")) for target in present]


def _owned_fields(want: Object) -> Object:
    metadata = want["metadata"]
    return {
        "metadata": {"labels": metadata["labels"], "annotations": metadata["annotations"]},
        "spec": want["spec"],
    }
