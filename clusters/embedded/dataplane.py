"""The data plane controller: Ingresses, ServerlessServices and ready Pods → Envoy's configuration and the activator's.

    Ingress ─┐                          ┌─▶ Envoy (one update at a time; what changes meanwhile goes into the next)
    SKS ─────┼─▶ dirty keys ─▶ View ────┤       └─▶ status of Ingresses and ServerlessServices, once a probe saw it
    Pod ─────┤                          └─▶ activator (at once, each revision for itself)
    PA ──────┘

A revision is served by its ready Pods when its ServerlessService says Serve and one is ready, else by the activator.
Envoy's files are not touched before the informers hold everything: one that was adopted goes on by what it has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final, Protocol

from clusters.api import Cluster
from clusters.clock import Clock
from clusters.controller import Controller
from clusters.embedded import dataplane_status
from clusters.embedded.activator_link import Target
from clusters.embedded.dataplane_view import Hold, HoldPolicy, Snapshot, View, revision_of
from clusters.errors import KnodelError, NotFound, Unavailable
from clusters.gateway.routes import Backend, Table
from clusters.informer import Informers
from clusters.objects import (
    INGRESS,
    POD,
    POD_AUTOSCALER,
    SERVERLESS_SERVICE,
    Key,
    Kind,
    Object,
    generation_of,
    key_of,
    uid_of,
)

log = logging.getLogger(__name__)

MANAGER: Final = "knodel-dataplane"
RELEASE_TIMEOUT: Final = 5.0  # s; a Pod that cannot be taken out of routing by then is stopped all the same
RETRY_AFTER: Final = 0.25  # s between tries while Envoy, or the activator, does not answer


class Gateway(Protocol):
    """What is needed of `clusters.gateway.envoy.Envoy`."""

    async def apply(self, table: Table) -> None:
        """Return once every later request is routed by `table`. Raises KnodelError."""
        ...


class Activator(Protocol):
    """What is needed of `clusters.embedded.activator_link.ActivatorLink`."""

    async def set_target(self, target: Target) -> None:
        """Return once it is in force. Raises Unavailable."""
        ...

    async def remove_target(self, key: Key) -> None:
        """Forget a revision. Raises Unavailable."""
        ...

    async def retain(self, keys: Iterable[Key]) -> None:
        """Forget all other revisions. Raises Unavailable."""
        ...


class DataPlane:
    """Make it before the informers run; `run` until the end."""

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        *,
        envoy: Gateway,
        activator: Activator,
        activator_address: tuple[str, int],
        hold: Hold,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._informers = informers
        self._envoy = envoy
        self._activator = activator
        self._clock = clock
        self._view = View(informers, Backend(*activator_address), hold)
        self._live = Snapshot()
        self._trouble = ""
        self._dirty_ingresses: set[Key] = set()
        self._dirty_revisions: set[Key] = set()
        self._changed = asyncio.Event()
        self._changes = 0
        self._applied = -1  # number of the last change that is in force; -1 before the first configuration is
        self._progress = asyncio.Condition()
        self._told: set[Key] = set()
        self._targets = Controller("activator targets", self._tell_activator, workers=8)
        self._ingress_statuses = Controller("ingress status", self._report_ingress)
        self._service_statuses = Controller("serverless service status", self._report_service)
        self._subscribe()

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        await self._informers.synced()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._update_envoy(), name="data plane")
            group.create_task(self._forget_former(), name="former targets")
            for controller in (self._targets, self._ingress_statuses, self._service_statuses):
                group.create_task(controller.run(), name=controller.name)

    async def ready(self) -> None:
        """Return once the first configuration, made from all objects, is in force."""
        await self._in_force(0)

    async def release(self, pod: Object) -> None:
        """Return once neither Envoy nor the activator sends new requests to this Pod, after `RELEASE_TIMEOUT` anyway.

        Its requests under way go on. From here on the Pod is left out even while it says that it is ready.
        """
        revision = revision_of(pod)
        if revision is None:
            return
        self._view.release(pod)
        number = self._touch(revision)
        target = self._view.target(revision)
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT):
                if target is not None:
                    await asyncio.gather(self._in_force(number), self._activator.set_target(target))
                else:
                    await self._in_force(number)
        except (TimeoutError, Unavailable) as error:
            log.warning("pod %s may still be sent requests while it stops: %s", key_of(pod), error or "timed out")

    def _subscribe(self) -> None:
        self._informers[INGRESS].subscribe(self._on_ingress)
        self._informers[SERVERLESS_SERVICE].subscribe(self._on_service)
        self._informers[POD].subscribe(self._on_pod)
        self._informers[POD_AUTOSCALER].subscribe(self._on_autoscaler)

    def _on_ingress(self, before: Object | None, after: Object | None) -> None:
        key = _key(before, after)
        if before is None or after is None or _wording(before) != _wording(after):
            self._dirty_ingresses.add(key)
            self._wake()
        else:
            self._ingress_statuses.queue.add(key)

    def _on_service(self, before: Object | None, after: Object | None) -> None:
        key = _key(before, after)
        if before is None or after is None or _wording(before) != _wording(after):
            if before is None or after is None:
                self._dirty_ingresses.update(self._view.ingresses_of(key))
            self._touch(key)
        else:
            self._service_statuses.queue.add(key)

    def _on_pod(self, before: Object | None, after: Object | None) -> None:
        for revision in {revision_of(pod) for pod in (before, after) if pod is not None} - {None}:
            if revision is not None:
                self._touch(revision)
        if after is None and before is not None:
            self._view.forget(before)

    def _on_autoscaler(self, before: Object | None, after: Object | None) -> None:
        key = _key(before, after)
        self._dirty_ingresses.update(self._view.ingresses_of(key))
        self._touch(key)

    def _touch(self, revision: Key) -> int:
        """The revision's endpoints or policy may be others; the number of this change."""
        self._dirty_revisions.add(revision)
        self._targets.queue.add(revision)
        return self._wake()

    def _wake(self) -> int:
        self._changes += 1
        self._changed.set()
        return self._changes

    async def _update_envoy(self) -> None:
        """One update at a time; whatever changes while one is confirmed goes into the next."""
        self._changed.set()
        while True:
            await self._changed.wait()
            self._changed.clear()
            number = self._changes
            ingresses, self._dirty_ingresses = self._dirty_ingresses, set()
            revisions, self._dirty_revisions = self._dirty_revisions, set()
            snapshot = self._view.refresh(ingresses, revisions)
            try:
                await self._envoy.apply(snapshot.table)
            except KnodelError as error:
                await self._failed(error, ingresses, revisions)
            else:
                await self._succeeded(number, snapshot, ingresses, revisions)

    async def _failed(self, error: KnodelError, ingresses: set[Key], revisions: set[Key]) -> None:
        if str(error) != self._trouble:
            log.error("the data plane's configuration is not in force: %s", error)
        self._trouble = str(error)
        self._dirty_ingresses |= ingresses
        self._dirty_revisions |= revisions
        for key in ingresses:
            self._ingress_statuses.queue.add(key)
        await self._clock.sleep(RETRY_AFTER)
        self._changed.set()

    async def _succeeded(self, number: int, snapshot: Snapshot, ingresses: set[Key], revisions: set[Key]) -> None:
        self._trouble = ""
        self._live = snapshot
        self._applied = number
        for key in ingresses:
            self._ingress_statuses.queue.add(key)
        for key in revisions:
            self._service_statuses.queue.add(key)
        async with self._progress:
            self._progress.notify_all()

    async def _in_force(self, number: int) -> None:
        async with self._progress:
            await self._progress.wait_for(lambda: self._applied >= number)

    async def _tell_activator(self, revision: Key) -> None:
        target = self._view.target(revision)
        if target is not None:
            await self._activator.set_target(target)
            self._told.add(revision)
            self._service_statuses.queue.add(revision)
        elif revision in self._told:
            await self._activator.remove_target(revision)
            self._told.discard(revision)

    async def _forget_former(self) -> None:
        """Once: what an activator that was left running knows of revisions that are gone."""
        while True:
            try:
                await self._activator.retain(self._view.revisions())
            except Unavailable as error:
                log.debug("the activator keeps what it knew: %s", error)
                await self._clock.sleep(RETRY_AFTER)
            else:
                return

    async def _report_ingress(self, key: Key) -> None:
        ingress = self._informers[INGRESS].get(key.name, key.namespace)
        if ingress is None:
            return
        now = self._clock.now()
        losses = sorted(host for host, loser in self._live.refused.items() if loser == key)
        if self._live.ingresses.get(key) == _wording(ingress):
            status = dataplane_status.ingress_ready(ingress, now)
            if losses:
                message = f"the host {losses[0]} belongs to another Ingress: choose another name or tag"
                status = dataplane_status.ingress_refused(ingress, "HostInUse", message, now)
        elif self._trouble:
            status = dataplane_status.ingress_waiting(ingress, "GatewayNotReady", self._trouble, now)
        else:
            return  # under way: a status between would only cost a write
        await self._write_status(INGRESS, ingress, status)

    async def _report_service(self, key: Key) -> None:
        service = self._informers[SERVERLESS_SERVICE].get(key.name, key.namespace)
        if service is None or key not in self._told or self._live.services.get(key) != _wording(service):
            return
        status = dataplane_status.service_status(
            service,
            populated=bool(self._view.endpoints(key)),
            direct=self._live.is_direct(key),
            now=self._clock.now(),
        )
        await self._write_status(SERVERLESS_SERVICE, service, status)

    async def _write_status(self, kind: Kind, obj: Object, status: Object) -> None:
        if status == obj.get("status"):
            return
        key = key_of(obj)
        patch = {"metadata": {"uid": uid_of(obj)}, "status": status}  # of this very object, not of a namesake after it
        try:
            await self._cluster.patch(kind, key.name, patch, key.namespace, manager=MANAGER, subresource="status")
        except NotFound:
            log.debug("%s %s went while its status was written", kind, key)


def _key(before: Object | None, after: Object | None) -> Key:
    obj = after if after is not None else before
    if obj is None:
        raise TypeError("an informer reported neither a state before nor one after")
    return key_of(obj)


def _wording(obj: Object) -> tuple[str, int]:
    return uid_of(obj), generation_of(obj)


__all__ = ["Activator", "DataPlane", "Gateway", "Hold", "HoldPolicy"]
