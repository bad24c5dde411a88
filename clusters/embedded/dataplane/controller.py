"""The data plane controller: program Envoy and the activator from Ingresses, ServerlessServices and ready Pods.

    Ingress ─┐                                 ┌─▶ Envoy: one update at a time; later changes are in the next one
    SKS ─────┼─▶ changed keys ─▶ RoutingState ─┤     └─▶ statuses of Ingresses and ServerlessServices, after a probe
    Pod ─────┤                                 └─▶ activator: at once, each revision separately
    PA ──────┤
    Model ───┘     for the lists of language models

Envoy sends requests to a revision's ready Pods when its ServerlessService is in mode Serve and a Pod is ready;
otherwise to the activator. Envoy's files are not changed before the informers have listed all objects, so an adopted
Envoy keeps its configuration until then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final, Protocol

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import KnodelError, Unavailable
from clusters.base.objects import INGRESS, MODEL, POD, POD_AUTOSCALER, SERVERLESS_SERVICE, Key, Object, key_of
from clusters.embedded.activator.wire import ActivatorTarget
from clusters.embedded.dataplane.routing import ReadHoldPolicy, RoutingState, revision_of, spec_version_of
from clusters.embedded.dataplane.status import StatusReporter
from clusters.gateway.errors import NotServing
from clusters.gateway.routes import Backend, Table
from clusters.gateway.token import ACTIVATOR, GatewayTokens
from clusters.net.language_models import language_model
from clusters.runtime.controller import Controller
from clusters.runtime.informer import Informers

log = logging.getLogger(__name__)

RELEASE_TIMEOUT: Final = 5.0  # s; a Pod that is still routed to after this time is stopped anyway
QUIET_TIMEOUT: Final = 1.0  # s to wait for the active requests of a released Pod
QUIET_POLL: Final = 0.005  # s between checks of these requests
RETRY_DELAY: Final = 0.25  # s between attempts while Envoy or the activator does not answer


class Gateway(Protocol):
    """The methods of `clusters.gateway.envoy.Envoy` that are used here."""

    async def apply(self, table: Table) -> None:
        """Return once every later request is routed by `table`. Raises NotServing, ConfigurationRejected."""
        ...

    async def requests_at(self, backend: Backend) -> int:
        """Return the number of active requests of a backend of the present table. Raises NotServing."""
        ...


class Activator(Protocol):
    """The methods of `clusters.embedded.activator.link.ActivatorLink` that are used here."""

    async def set_target(self, target: ActivatorTarget) -> None:
        """Return once `target` is applied. Raises Unavailable."""
        ...

    async def remove_target(self, key: Key) -> None:
        """Remove a revision. Raises Unavailable."""
        ...

    async def retain(self, keys: Iterable[Key]) -> None:
        """Remove all other revisions. Raises Unavailable."""
        ...


class DataPlane:
    """The controller. Create it before the informers run, and call `run`."""

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        *,
        envoy: Gateway,
        activator: Activator,
        activator_address: tuple[str, int],
        read_hold_policy: ReadHoldPolicy,
        tokens: GatewayTokens,
        clock: Clock,
    ) -> None:
        self._informers = informers
        self._envoy = envoy
        self._activator = activator
        self._clock = clock
        self._routing = RoutingState(
            informers, Backend(*activator_address, tokens.of(ACTIVATOR)), read_hold_policy, tokens
        )
        self._dirty_ingresses: set[Key] = set()
        self._dirty_revisions: set[Key] = set()
        self._dirty_models: set[Key] = set()
        self._changed = asyncio.Event()
        self._changes = 0
        self._applied = -1  # number of the last change that is programmed; -1 before the first configuration
        self._progress = asyncio.Condition()
        self._error = ""
        self._acknowledged: set[Key] = set()  # the revisions that the activator has acknowledged
        self._targets = Controller("activator targets", self._update_activator, workers=8)
        self._reporter = StatusReporter(cluster, informers, self._routing, self._acknowledged.__contains__, clock)
        informers[INGRESS].subscribe(self._on_ingress)
        informers[SERVERLESS_SERVICE].subscribe(self._on_service)
        informers[POD].subscribe(self._on_pod)
        informers[POD_AUTOSCALER].subscribe(self._on_autoscaler)
        informers[MODEL].subscribe(self._on_model)

    async def run(self) -> None:
        """Program Envoy and the activator until cancelled."""
        await self._informers.synced()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(), name="data plane")
            group.create_task(self._targets.run(), name=self._targets.name)
            group.create_task(self._reporter.run(), name="data plane reports")
            group.create_task(self._remove_old_targets(), name="former targets")

    async def ready(self) -> None:
        """Wait until the first configuration, of all objects, is programmed."""
        await self._wait_applied(0)

    async def release(self, pod: Object) -> None:
        """Wait until neither Envoy nor the activator sends new requests to this Pod, for at most `RELEASE_TIMEOUT`.

        From now on the Pod is excluded even while its status is Ready. Its active requests continue. The server may not
        have read a request that was sent just before, and would lose it if it ended now. So this also waits for the
        active requests to end, for at most `QUIET_TIMEOUT`: the server has read any request that takes longer.
        """
        revision = revision_of(pod)
        if revision is None:
            return
        self._routing.release(pod)
        number = self._touch(revision)
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT):
                await self._wait_applied(number)
                await self._update_activator(revision)  # a worker already does this: wait for its acknowledgement
                address = self._routing.address(pod)
                deadline = self._clock.monotonic() + QUIET_TIMEOUT
                while address is not None and await self._envoy.requests_at(address):
                    if self._clock.monotonic() >= deadline:
                        break
                    await self._clock.sleep(QUIET_POLL)
        except (TimeoutError, Unavailable, NotServing) as error:
            log.warning("pod %s may still be sent requests while it stops: %s", key_of(pod), str(error) or "timed out")

    def _on_ingress(self, before: Object | None, after: Object | None) -> None:
        key = _key(before, after)
        if _same_spec(before, after):
            self._reporter.enqueue_ingress(key)
        else:
            self._dirty_ingresses.add(key)
            self._record_change()

    def _on_service(self, before: Object | None, after: Object | None) -> None:
        key = _key(before, after)
        if _same_spec(before, after):
            self._reporter.enqueue_service(key)
            return
        if before is None or after is None:
            self._dirty_ingresses.update(self._routing.ingresses_of(key))
        self._touch(key)

    def _on_pod(self, before: Object | None, after: Object | None) -> None:
        for pod in (before, after):
            revision = revision_of(pod) if pod is not None else None
            if revision is not None:
                self._touch(revision)
        if after is None and before is not None:
            self._routing.forget(before)

    def _on_autoscaler(self, before: Object | None, after: Object | None) -> None:
        key = _key(before, after)
        self._dirty_ingresses.update(self._routing.ingresses_of(key))  # whose routes have timeouts
        self._touch(key)

    def _on_model(self, before: Object | None, after: Object | None) -> None:
        former, present = (None if one is None else language_model(one) for one in (before, after))
        if former != present:
            self._dirty_models.add(_key(before, after))
            self._record_change()

    def _touch(self, revision: Key) -> int:
        """Record that the endpoints or the policy of the revision may have changed.

        Return the number of this change.
        """
        self._dirty_revisions.add(revision)
        self._targets.queue.add(revision)
        return self._record_change()

    def _record_change(self) -> int:
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
        models, self._dirty_models = self._dirty_models, set()
        snapshot = self._routing.refresh(ingresses, revisions, models)
        try:
            await self._envoy.apply(snapshot.table)
        except KnodelError as error:
            self._dirty_ingresses |= ingresses
            self._dirty_revisions |= revisions
            await self._failed(error, ingresses)
            return
        self._error = ""
        self._applied = number
        self._reporter.programmed(snapshot, ingresses, revisions)
        async with self._progress:
            self._progress.notify_all()

    async def _failed(self, error: KnodelError, ingresses: set[Key]) -> None:
        if str(error) != self._error:
            log.error("cannot program the data plane: %s", error)
        self._error = str(error)
        self._reporter.failed(self._error, ingresses)
        if isinstance(error, NotServing):  # a rejected configuration is not retried until an object changes
            await self._clock.sleep(RETRY_DELAY)
            self._changed.set()

    async def _wait_applied(self, number: int) -> None:
        async with self._progress:
            await self._progress.wait_for(lambda: self._applied >= number)

    async def _update_activator(self, revision: Key) -> None:
        target = self._routing.target(revision)
        if target is not None:
            await self._activator.set_target(target)
            self._acknowledged.add(revision)
            self._reporter.enqueue_service(revision)
        elif revision in self._acknowledged:
            self._acknowledged.discard(revision)
            await self._activator.remove_target(revision)

    async def _remove_old_targets(self) -> None:
        """Remove revisions that no longer exist from an activator that kept running, once."""
        while True:
            try:
                await self._activator.retain(self._routing.revisions())
            except Unavailable as error:
                log.debug("cannot remove old revisions from the activator: %s", error)
                await self._clock.sleep(RETRY_DELAY)
            else:
                return


def _key(before: Object | None, after: Object | None) -> Key:
    obj = after if after is not None else before
    if obj is None:
        raise TypeError("an informer reported a change without an object")
    return key_of(obj)


def _same_spec(before: Object | None, after: Object | None) -> bool:
    """Return whether only metadata or status changed."""
    return before is not None and after is not None and spec_version_of(before) == spec_version_of(after)
