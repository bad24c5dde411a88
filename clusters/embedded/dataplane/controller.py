"""The data plane controller: Ingresses, ServerlessServices and ready Pods → Envoy's configuration and the activator's.

    Ingress ─┐                       ┌─▶ Envoy: one update at a time, what changes meanwhile goes into the next
    SKS ─────┼─▶ dirty keys ─▶ View ─┤     └─▶ statuses of Ingresses and ServerlessServices, once a probe saw it
    Pod ─────┤                       └─▶ activator: at once, each revision for itself
    PA ──────┘

A revision is served by its ready Pods when its ServerlessService says Serve and one is ready, else by the activator.
Envoy's files are not touched before the informers hold everything: one that was adopted goes on by what it has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final, Protocol

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import KnodelError, Unavailable
from clusters.base.objects import INGRESS, POD, POD_AUTOSCALER, SERVERLESS_SERVICE, Key, Object, key_of
from clusters.embedded.activator.link import Target
from clusters.embedded.dataplane.reports import Reports
from clusters.embedded.dataplane.view import Hold, HoldPolicy, View, revision_of, stamp_of
from clusters.gateway.errors import NotServing
from clusters.gateway.routes import Backend, Table
from clusters.gateway.token import ACTIVATOR, GatewayTokens
from clusters.runtime.controller import Controller
from clusters.runtime.informer import Informers

log = logging.getLogger(__name__)

RELEASE_TIMEOUT: Final = 5.0  # s; a Pod that cannot be taken out of routing by then is stopped all the same
QUIET_WITHIN: Final = 1.0  # s for a released Pod's last requests to end; one that takes longer is well under way there
LOOK_EVERY: Final = 0.005  # s between looks at a Pod's last requests
RETRY_AFTER: Final = 0.25  # s between tries while Envoy, or the activator, does not answer


class Gateway(Protocol):
    """What is needed of `clusters.gateway.envoy.Envoy`."""

    async def apply(self, table: Table) -> None:
        """Return once every later request is routed by `table`. Raises NotServing, ConfigurationRejected."""
        ...

    async def requests_at(self, backend: Backend) -> int:
        """How many requests a backend of the present table has not answered yet. Raises NotServing."""
        ...


class Activator(Protocol):
    """What is needed of `clusters.embedded.activator.link.ActivatorLink`."""

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
        tokens: GatewayTokens,
        clock: Clock,
    ) -> None:
        self._informers = informers
        self._envoy = envoy
        self._activator = activator
        self._clock = clock
        self._view = View(informers, Backend(*activator_address, tokens.of(ACTIVATOR)), hold, tokens)
        self._dirty_ingresses: set[Key] = set()
        self._dirty_revisions: set[Key] = set()
        self._changed = asyncio.Event()
        self._changes = 0
        self._applied = -1  # number of the last change that is in force; -1 before the first configuration is
        self._progress = asyncio.Condition()
        self._trouble = ""
        self._told: set[Key] = set()  # the revisions that the activator acknowledged
        self._targets = Controller("activator targets", self._tell_activator, workers=8)
        self._reports = Reports(cluster, informers, self._view, self._told.__contains__, clock)
        self._subscribe()

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        await self._informers.synced()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(), name="data plane")
            group.create_task(self._targets.run(), name=self._targets.name)
            group.create_task(self._reports.run(), name="data plane reports")
            group.create_task(self._forget_former(), name="former targets")

    async def ready(self) -> None:
        """Return once the first configuration, made from all objects, is in force."""
        await self._in_force(0)

    async def release(self, pod: Object) -> None:
        """Return once neither Envoy nor the activator sends new requests to this Pod, after `RELEASE_TIMEOUT` anyway.

        Its requests under way go on. From here on the Pod is left out even while it says that it is ready. A request
        may have been sent to it just before, and not be read yet: a server that ends now would lose it. So this waits
        for its requests to end, too, for `QUIET_WITHIN`: whatever is under way for so long the server has read.
        """
        revision = revision_of(pod)
        if revision is None:
            return
        self._view.release(pod)
        number = self._touch(revision)
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT):
                await self._in_force(number)
                await self._tell_activator(revision)  # a worker is at it already: this waits for the same answer
                await self._quiet(pod)
        except (TimeoutError, Unavailable, NotServing) as error:
            log.warning("pod %s may still be sent requests while it stops: %s", key_of(pod), str(error) or "timed out")

    async def _quiet(self, pod: Object) -> None:
        address = self._view.address(pod)
        deadline = self._clock.monotonic() + QUIET_WITHIN
        while address is not None and await self._envoy.requests_at(address) and self._clock.monotonic() < deadline:
            await self._clock.sleep(LOOK_EVERY)

    def _subscribe(self) -> None:
        self._informers[INGRESS].subscribe(self._on_ingress)
        self._informers[SERVERLESS_SERVICE].subscribe(self._on_service)
        self._informers[POD].subscribe(self._on_pod)
        self._informers[POD_AUTOSCALER].subscribe(self._on_autoscaler)

    def _on_ingress(self, before: Object | None, after: Object | None) -> None:
        key = _key(before, after)
        if _same_wording(before, after):
            self._reports.ingress(key)
        else:
            self._dirty_ingresses.add(key)
            self._wake()

    def _on_service(self, before: Object | None, after: Object | None) -> None:
        key = _key(before, after)
        if _same_wording(before, after):
            self._reports.service(key)
            return
        if before is None or after is None:
            self._dirty_ingresses.update(self._view.ingresses_of(key))
        self._touch(key)

    def _on_pod(self, before: Object | None, after: Object | None) -> None:
        for pod in (before, after):
            revision = revision_of(pod) if pod is not None else None
            if revision is not None:
                self._touch(revision)
        if after is None and before is not None:
            self._view.forget(before)

    def _on_autoscaler(self, before: Object | None, after: Object | None) -> None:
        key = _key(before, after)
        self._dirty_ingresses.update(self._view.ingresses_of(key))  # for the timeouts of their routes
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

    async def _follow(self) -> None:
        self._changed.set()
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._update_envoy()

    async def _update_envoy(self) -> None:
        number = self._changes
        ingresses, self._dirty_ingresses = self._dirty_ingresses, set()
        revisions, self._dirty_revisions = self._dirty_revisions, set()
        snapshot = self._view.refresh(ingresses, revisions)
        try:
            await self._envoy.apply(snapshot.table)
        except KnodelError as error:
            self._dirty_ingresses |= ingresses
            self._dirty_revisions |= revisions
            await self._failed(error, ingresses)
            return
        self._trouble = ""
        self._applied = number
        self._reports.in_force(snapshot, ingresses, revisions)
        async with self._progress:
            self._progress.notify_all()

    async def _failed(self, error: KnodelError, ingresses: set[Key]) -> None:
        if str(error) != self._trouble:
            log.error("the configuration of the data plane is not in force: %s", error)
        self._trouble = str(error)
        self._reports.in_trouble(self._trouble, ingresses)
        if isinstance(error, NotServing):  # what was refused stays refused until something changes
            await self._clock.sleep(RETRY_AFTER)
            self._changed.set()

    async def _in_force(self, number: int) -> None:
        async with self._progress:
            await self._progress.wait_for(lambda: self._applied >= number)

    async def _tell_activator(self, revision: Key) -> None:
        target = self._view.target(revision)
        if target is not None:
            await self._activator.set_target(target)
            self._told.add(revision)
            self._reports.service(revision)
        elif revision in self._told:
            self._told.discard(revision)
            await self._activator.remove_target(revision)

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


def _key(before: Object | None, after: Object | None) -> Key:
    obj = after if after is not None else before
    if obj is None:
        raise TypeError("an informer reported neither a state before nor one after")
    return key_of(obj)


def _same_wording(before: Object | None, after: Object | None) -> bool:
    """Whether only metadata or status changed."""
    return before is not None and after is not None and stamp_of(before) == stamp_of(after)


__all__ = ["Activator", "DataPlane", "Gateway", "Hold", "HoldPolicy"]
