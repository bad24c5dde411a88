"""Tells the cluster what is in force: statuses of Ingresses and ServerlessServices, written only when they differ."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import NotFound
from clusters.base.objects import INGRESS, SERVERLESS_SERVICE, Key, Kind, Object, key_of, uid_of
from clusters.embedded.dataplane import status as dataplane_status
from clusters.embedded.dataplane.view import Snapshot, View, stamp_of
from clusters.runtime.controller import Controller
from clusters.runtime.informer import Informers

log = logging.getLogger(__name__)

MANAGER: Final = "knodel-dataplane"


class Reports:
    """`known_to_activator` says whether the activator has acknowledged a revision."""

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        view: View,
        known_to_activator: Callable[[Key], bool],
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._ingresses = informers[INGRESS]
        self._services = informers[SERVERLESS_SERVICE]
        self._view = view
        self._known_to_activator = known_to_activator
        self._clock = clock
        self._live = Snapshot()
        self._trouble = ""
        self._ingress_controller = Controller("ingress status", self._report_ingress)
        self._service_controller = Controller("serverless service status", self._report_service)

    async def run(self) -> None:
        """Write statuses until cancelled."""
        async with asyncio.TaskGroup() as group:
            for controller in (self._ingress_controller, self._service_controller):
                group.create_task(controller.run(), name=controller.name)

    def in_force(self, snapshot: Snapshot, ingresses: Iterable[Key], revisions: Iterable[Key]) -> None:
        """A probe saw `snapshot`; these were new in it."""
        losers = {*snapshot.refused.values(), *self._live.refused.values()}
        self._live = snapshot
        self._trouble = ""
        for key in {*ingresses, *losers, *snapshot.faults}:
            self.ingress(key)
        for key in revisions:
            self.service(key)

    def in_trouble(self, message: str, ingresses: Iterable[Key]) -> None:
        """What these Ingresses say now could not be put in force."""
        self._trouble = message
        for key in ingresses:
            self.ingress(key)

    def ingress(self, key: Key) -> None:
        """Look at this Ingress's status again."""
        self._ingress_controller.queue.add(key)

    def service(self, key: Key) -> None:
        """Look at this ServerlessService's status again."""
        self._service_controller.queue.add(key)

    async def _report_ingress(self, key: Key) -> None:
        ingress = self._ingresses.get(key.name, key.namespace)
        status = self._ingress_status(key, ingress) if ingress is not None else None
        if ingress is not None and status is not None:
            await self._write(INGRESS, ingress, status)

    def _ingress_status(self, key: Key, ingress: Object) -> Object | None:
        """None while it is under way: a status between would only cost a write."""
        now = self._clock.now()
        if key in self._live.faults:
            fault = self._live.faults[key]
            return dataplane_status.ingress_refused(ingress, "InvalidIngress", fault, now)
        if self._live.ingresses.get(key) != stamp_of(ingress):
            if not self._trouble:
                return None
            return dataplane_status.ingress_waiting(ingress, "GatewayNotReady", self._trouble, now)
        lost = sorted(host for host, loser in self._live.refused.items() if loser == key)
        if lost:
            message = f"the host {lost[0]} belongs to another Ingress: choose another name or tag"
            return dataplane_status.ingress_refused(ingress, "HostInUse", message, now)
        return dataplane_status.ingress_ready(ingress, now)

    async def _report_service(self, key: Key) -> None:
        service = self._services.get(key.name, key.namespace)
        if service is None or self._live.services.get(key) != stamp_of(service) or not self._known_to_activator(key):
            return
        status = dataplane_status.service_status(
            service,
            populated=bool(self._view.endpoints(key)),
            direct=self._live.is_direct(key),
            now=self._clock.now(),
        )
        await self._write(SERVERLESS_SERVICE, service, status)

    async def _write(self, kind: Kind, obj: Object, status: Object) -> None:
        if status == obj.get("status"):
            return
        key = key_of(obj)
        patch = {"metadata": {"uid": uid_of(obj)}, "status": status}  # of this very object, not of a namesake after it
        try:
            await self._cluster.patch(kind, key.name, patch, key.namespace, manager=MANAGER, subresource="status")
        except NotFound:
            log.debug("%s %s went while its status was written", kind, key)
