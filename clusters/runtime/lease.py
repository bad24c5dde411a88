"""Leader election over a Lease: at most one holder acts, judged by the local monotonic clock alone.

As in client-go's `leaderelection`, wall clocks are never compared: a candidate takes over when it has itself seen the
Lease unchanged for the holder's whole duration. The holder stops one renewal period before that, measured from the
*start* of its last successful renewal. A process that was stopped and goes on may still believe for one instruction
that it leads: writes that must not come late carry `fencing`, or a resourceVersion precondition.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Coroutine
from datetime import datetime
from typing import NoReturn, TypeVar

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import AlreadyExists, ClusterError, Conflict, KnodelError, NotFound
from clusters.base.objects import LEASE, Object, version_of

log = logging.getLogger(__name__)

T = TypeVar("T")

DURATION = 15.0
"""s that a Lease outlives its last renewal (client-go's default)."""
RENEW_EVERY = 5.0
"""s between renewals, and between looks of a candidate."""
MANAGER = "knodel"
"""Field manager of what candidates write; by identity, every Pod that ever led would stay an owner of fields."""
TRIES_PER_PERIOD = 5
"""How often within one period a renewal that failed is tried again, before the lead has to be given up."""


class LeaseLost(KnodelError):
    """This process does not lead any more; it must stop acting at once."""


class LeaderLease:
    """One candidate for one Lease. `identity` must be unique to this process."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        namespace: str,
        identity: str,
        clock: Clock,
        duration: float = DURATION,
        renew_every: float = RENEW_EVERY,
    ) -> None:
        if not 0 < renew_every < duration / 2:
            raise ValueError(f"renew_every {renew_every} s must be above 0 and below half the duration {duration} s")
        self._cluster = cluster
        self._name = name
        self._namespace = namespace
        self._identity = identity
        self._clock = clock
        self._duration = duration
        self._renew_every = renew_every
        self._patience = (duration - 2 * renew_every) / 2  # half of what is left when a renewal starts
        self._seen: Object | None = None
        self._seen_at = 0.0
        self._version = ""
        self._valid_until = float("-inf")
        self.fencing = 0

    @property
    def valid(self) -> bool:
        """Whether this process leads now, as far as its own clock can tell."""
        return self._clock.monotonic() < self._valid_until

    async def acquire(self) -> int:
        """Wait until this process leads; returns `fencing`, which rises with every holder."""
        while True:
            try:
                if await self._within(self._duration - self._renew_every, self._try()):  # later it is no lead any more
                    return self.fencing
            except (Conflict, AlreadyExists):
                log.debug("another candidate was first at lease %s", self._name)
            except ClusterError as error:
                log.warning("cannot acquire lease %s: %s", self._name, error)
            await self._clock.sleep(self._renew_every)

    async def hold(self) -> NoReturn:
        """Renew until leadership is lost. Raises LeaseLost, also when the cluster is silent for too long."""
        pause = self._renew_every
        while True:
            await self._until_due(self._clock.sleep(pause))
            before = self._valid_until
            await self._until_due(self._renew(), patience=self._patience)
            failed = self._valid_until == before
            pause = self._renew_every / TRIES_PER_PERIOD if failed else self._renew_every

    async def release(self) -> None:
        """Let the next candidate in at once. Harmless when leadership is lost already."""
        self._valid_until = float("-inf")
        try:
            try:
                await self._vacate()
            except Conflict:  # by a renewal of ours whose answer did not come, for example
                await self._reread()
                await self._vacate()
        except (ClusterError, LeaseLost) as error:
            log.info("lease %s was not released, it will run out: %s", self._name, error)

    async def _vacate(self) -> None:
        patch = {"metadata": {"resourceVersion": self._version}, "spec": {"holderIdentity": ""}}
        await self._cluster.patch(LEASE, self._name, patch, self._namespace, manager=MANAGER)

    async def _until_due(self, step: Coroutine[object, object, None], patience: float = math.inf) -> None:
        """Run one step, but no longer than leadership is certain, nor than `patience` seconds: a dead connection may
        swallow one renewal, the next goes over another.
        """
        await self._within(min(patience, self._valid_until - self._clock.monotonic()), step)
        if not self.valid:
            self._lose(f"it was not renewed for {self._duration - self._renew_every:g} s")

    async def _within(self, seconds: float, step: Coroutine[object, object, T]) -> T | None:
        """The answer of one step; None when it is not there within `seconds`: then the step is given up."""
        work = asyncio.create_task(step)
        due = asyncio.create_task(self._clock.sleep(seconds))
        try:
            await asyncio.wait({work, due}, return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else None
        finally:
            work.cancel()
            due.cancel()

    async def _renew(self) -> None:
        started = self._clock.monotonic()
        patch = {"metadata": {"resourceVersion": self._version}, "spec": {"renewTime": _micro_time(self._clock.now())}}
        try:
            renewed = await self._cluster.patch(LEASE, self._name, patch, self._namespace, manager=MANAGER)
        except NotFound:
            self._lose("it was deleted")
        except Conflict:
            await self._reread()
        except ClusterError as error:
            log.warning("cannot renew lease %s: %s", self._name, error)
        else:
            self._held(renewed, started)

    async def _reread(self) -> None:
        """Somebody wrote the Lease: another holder, or a label only. The next renewal is on the new version."""
        try:
            present = await self._cluster.get(LEASE, self._name, self._namespace)
        except ClusterError as error:
            log.warning("cannot read lease %s: %s", self._name, error)
            return
        spec = present.get("spec") or {}
        if spec.get("holderIdentity") != self._identity or _transitions(present) != self.fencing:
            self._lose(f"{spec.get('holderIdentity')!r} holds it")
        self._version = version_of(present)

    async def _try(self) -> bool:
        started = self._clock.monotonic()
        try:
            present = await self._cluster.get(LEASE, self._name, self._namespace)
        except NotFound:
            metadata = {"name": self._name, "namespace": self._namespace}
            fresh = {"metadata": metadata, "spec": self._taken(0)}
            self._held(await self._cluster.create(LEASE, fresh, manager=MANAGER), started)
            return True
        if not self._is_free(present):
            return False
        patch = {"metadata": {"resourceVersion": version_of(present)}, "spec": self._taken(_transitions(present) + 1)}
        taken = await self._cluster.patch(LEASE, self._name, patch, self._namespace, manager=MANAGER)
        self._held(taken, started)
        return True

    def _is_free(self, lease: Object) -> bool:
        """Whether nobody holds it, or its holder did not renew for its whole duration while this process looked."""
        spec = lease.get("spec") or {}
        if spec.get("holderIdentity") in (None, "", self._identity):
            return True
        now = self._clock.monotonic()
        if spec != self._seen:  # what else is written to it, a label for example, is no sign of life
            self._seen, self._seen_at = spec, now
        return now - self._seen_at >= float(spec.get("leaseDurationSeconds") or self._duration)

    def _taken(self, transitions: int) -> Object:
        now = _micro_time(self._clock.now())
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": math.ceil(self._duration),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }

    def _held(self, lease: Object, started: float) -> None:
        self._version = version_of(lease)
        self._valid_until = started + self._duration - self._renew_every
        self.fencing = _transitions(lease)

    def _lose(self, why: str) -> NoReturn:
        self._valid_until = float("-inf")
        raise LeaseLost(f"lease {self._namespace}/{self._name} is lost: {why}")


def _transitions(lease: Object) -> int:
    return int((lease.get("spec") or {}).get("leaseTransitions") or 0)


def _micro_time(at: datetime) -> str:
    """RFC 3339 with microseconds, the form of a Lease's times."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
