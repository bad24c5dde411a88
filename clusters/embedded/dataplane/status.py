"""Write the statuses of Ingresses and ServerlessServices, with Knative's conditions, reasons and messages.

Sources: knative/networking `pkg/apis/networking/v1alpha1/{ingress,serverlessservice}_lifecycle.go`, and
`pkg/reconciler/serverlessservice` of knative/serving.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import NotFound
from clusters.base.objects import INGRESS, SERVERLESS_SERVICE, Key, Kind, Object, key_of, name_of, uid_of
from clusters.embedded.dataplane.routing import RoutingState, Snapshot, spec_version_of
from clusters.embedded.knative.conditions import ConditionSet, Status
from clusters.runtime.controller import Controller
from clusters.runtime.informer import Informers

log = logging.getLogger(__name__)

MANAGER: Final = "knodel-dataplane"

NETWORK_CONFIGURED: Final = "NetworkConfigured"
LOAD_BALANCER_READY: Final = "LoadBalancerReady"
ENDPOINTS_POPULATED: Final = "EndpointsPopulated"
ACTIVATOR_ENDPOINTS_POPULATED: Final = "ActivatorEndpointsPopulated"


class _IngressStatus(Status):
    condition_set = ConditionSet((NETWORK_CONFIGURED, LOAD_BALANCER_READY))


class _ServerlessServiceStatus(Status):
    condition_set = ConditionSet((ENDPOINTS_POPULATED,))


def ingress_ready(ingress: Object, now: datetime) -> Object:
    """Return the status of an Ingress whose present spec a probe has found at Envoy."""
    status = _IngressStatus(ingress)
    status.conditions.mark_true(NETWORK_CONFIGURED)
    status.conditions.mark_true(LOAD_BALANCER_READY)
    return status.result(now)


def ingress_waiting(ingress: Object, reason: str, message: str, now: datetime) -> Object:
    """Return the status of an Ingress that is not programmed yet, for a temporary reason."""
    status = _IngressStatus(ingress)
    status.conditions.mark_unknown(LOAD_BALANCER_READY, reason, message)
    return status.result(now)


def ingress_refused(ingress: Object, reason: str, message: str, now: datetime) -> Object:
    """Return the status of an Ingress whose present spec cannot be programmed."""
    status = _IngressStatus(ingress)
    status.conditions.mark_false(NETWORK_CONFIGURED, reason, message)
    return status.result(now)


def service_status(service: Object, *, populated: bool, direct: bool, now: datetime) -> Object:
    """Return the status of a ServerlessService.

    `populated`: some Pod of the revision is ready. `direct`: Envoy sends requests to the Pods and not to the activator.
    """
    status = _ServerlessServiceStatus(service)
    status.fields["serviceName"] = name_of(service)
    status.fields["privateServiceName"] = f"{name_of(service)}-private"
    conditions = status.conditions
    if populated:
        conditions.mark_true(ENDPOINTS_POPULATED)
    else:
        conditions.mark_unknown(ENDPOINTS_POPULATED, "NoHealthyBackends", "K8s Service is not ready")
    mark = conditions.mark_false if direct else conditions.mark_true
    mark(ACTIVATOR_ENDPOINTS_POPULATED, ACTIVATOR_ENDPOINTS_POPULATED, "Revision is backed by Activator")
    return status.result(now)


class StatusReporter:
    """Write statuses when they change.

    `known_to_activator` returns whether the activator has acknowledged a revision.
    """

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        routing: RoutingState,
        known_to_activator: Callable[[Key], bool],
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._ingresses = informers[INGRESS]
        self._services = informers[SERVERLESS_SERVICE]
        self._routing = routing
        self._known_to_activator = known_to_activator
        self._clock = clock
        self._programmed = Snapshot()
        self._error = ""
        self._ingress_controller = Controller("ingress status", self._report_ingress)
        self._service_controller = Controller("serverless service status", self._report_service)

    async def run(self) -> None:
        """Write statuses until cancelled."""
        async with asyncio.TaskGroup() as group:
            for controller in (self._ingress_controller, self._service_controller):
                group.create_task(controller.run(), name=controller.name)

    def programmed(self, snapshot: Snapshot, ingresses: Iterable[Key], revisions: Iterable[Key]) -> None:
        """Record that a probe has found `snapshot` at Envoy. `ingresses` and `revisions` changed in it."""
        refused = {*snapshot.refused.values(), *self._programmed.refused.values()}
        self._programmed = snapshot
        self._error = ""
        for key in {*ingresses, *refused, *snapshot.faults}:
            self.enqueue_ingress(key)
        for key in revisions:
            self.enqueue_service(key)

    def failed(self, message: str, ingresses: Iterable[Key]) -> None:
        """Record that these Ingresses could not be programmed."""
        self._error = message
        for key in ingresses:
            self.enqueue_ingress(key)

    def enqueue_ingress(self, key: Key) -> None:
        """Reconcile the status of this Ingress."""
        self._ingress_controller.queue.add(key)

    def enqueue_service(self, key: Key) -> None:
        """Reconcile the status of this ServerlessService."""
        self._service_controller.queue.add(key)

    async def _report_ingress(self, key: Key) -> None:
        ingress = self._ingresses.get(key.name, key.namespace)
        if ingress is not None and (status := self._ingress_status(key, ingress)) is not None:
            await self._write(INGRESS, ingress, status)

    def _ingress_status(self, key: Key, ingress: Object) -> Object | None:
        """Return None while the Ingress is being programmed, to save a write."""
        now = self._clock.now()
        if key in self._programmed.faults:
            fault = self._programmed.faults[key]
            return ingress_refused(ingress, "InvalidIngress", fault, now)
        if self._programmed.ingresses.get(key) != spec_version_of(ingress):
            if not self._error:
                return None
            return ingress_waiting(ingress, "GatewayNotReady", self._error, now)
        refused = sorted(host for host, owner in self._programmed.refused.items() if owner == key)
        if refused:
            message = f"the host {refused[0]} belongs to another Ingress: choose another name or tag"
            return ingress_refused(ingress, "HostInUse", message, now)
        return ingress_ready(ingress, now)

    async def _report_service(self, key: Key) -> None:
        service = self._services.get(key.name, key.namespace)
        if (
            service is None
            or self._programmed.services.get(key) != spec_version_of(service)
            or not self._known_to_activator(key)
        ):
            return
        status = service_status(
            service,
            populated=bool(self._routing.endpoints(key)),
            direct=self._programmed.is_direct(key),
            now=self._clock.now(),
        )
        await self._write(SERVERLESS_SERVICE, service, status)

    async def _write(self, kind: Kind, obj: Object, status: Object) -> None:
        if status == obj.get("status"):
            return
        key = key_of(obj)
        patch = {"metadata": {"uid": uid_of(obj)}, "status": status}  # not of a later object with the same name
        try:
            await self._cluster.patch(kind, key.name, patch, key.namespace, manager=MANAGER, subresource="status")
        except NotFound:
            log.debug("%s %s was deleted before its status was written", kind, key)
