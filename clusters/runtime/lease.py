"""Leader election with a Lease: at most one holder acts, by its local monotonic clock.

As in client-go's `leaderelection`, wall clocks are never compared. A candidate takes over when it has observed the
Lease unchanged for the holder's whole duration. The holder stops one renewal period earlier, measured from the *start*
of its last successful renewal. A process that was suspended and resumed may assume for one more instruction that it
leads. So writes that must not come late carry `fencing`, or a resourceVersion precondition.
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
"""s from the last renewal until a Lease expires (client-go's default)."""
RENEW_EVERY = 5.0
"""s between renewals, and between attempts of a candidate."""
MANAGER = "knodel"
"""Field manager of all candidates. With one for each identity, every former leader would remain an owner of fields."""
TRIES_PER_PERIOD = 5
"""Attempts within one period after a failed renewal, before the leadership ends."""


class LeaseLost(KnodelError):
    """This process no longer leads and must stop acting at once."""


class LeaderLease:
    """A candidate for a Lease. `identity` must be unique to this process; times are in seconds.

    Example:
        await lease.acquire()
        await lease.hold()  # raises LeaseLost
    """

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
        self._renew_timeout = (duration - 2 * renew_every) / 2  # half of the remaining validity when a renewal starts
        self._observed: Object | None = None
        self._observed_at = 0.0
        self._version = ""
        self._valid_until = float("-inf")
        self.fencing = 0

    @property
    def valid(self) -> bool:
        """Return whether this process leads now, by its own clock."""
        return self._clock.monotonic() < self._valid_until

    async def acquire(self) -> int:
        """Wait until this process leads; return `fencing`, which increases with every holder."""
        while True:
            try:
                if await self._within(self._duration - self._renew_every, self._try()):  # a longer one has expired
                    return self.fencing
            except (Conflict, AlreadyExists):
                log.debug("another candidate acquired lease %s first", self._name)
            except ClusterError as error:
                log.warning("cannot acquire lease %s: %s", self._name, error)
            await self._clock.sleep(self._renew_every)

    async def hold(self) -> NoReturn:
        """Renew until the leadership is lost. Raises LeaseLost, also when the cluster does not respond in time."""
        pause = self._renew_every
        while True:
            await self._until_due(self._clock.sleep(pause))
            before = self._valid_until
            await self._until_due(self._renew(), timeout=self._renew_timeout)
            failed = self._valid_until == before
            pause = self._renew_every / TRIES_PER_PERIOD if failed else self._renew_every

    async def release(self) -> None:
        """Release the Lease, so that the next candidate leads at once. Does nothing once the leadership is lost."""
        self._valid_until = float("-inf")
        try:
            try:
                await self._vacate()
            except Conflict:  # for example by our own renewal whose response was lost
                await self._reread()
                await self._vacate()
        except (ClusterError, LeaseLost) as error:
            log.info("lease %s was not released and will expire: %s", self._name, error)

    async def _vacate(self) -> None:
        patch = {"metadata": {"resourceVersion": self._version}, "spec": {"holderIdentity": ""}}
        await self._cluster.patch(LEASE, self._name, patch, self._namespace, manager=MANAGER)

    async def _until_due(self, step: Coroutine[object, object, None], timeout: float = math.inf) -> None:
        """Run one step while the leadership is certain, for at most `timeout` seconds.

        A dead connection may lose one renewal; the next one uses another connection.
        """
        await self._within(min(timeout, self._valid_until - self._clock.monotonic()), step)
        if not self.valid:
            self._lose(f"not renewed for {self._duration - self._renew_every:g} s")

    async def _within(self, seconds: float, step: Coroutine[object, object, T]) -> T | None:
        """Return the result of a step, or cancel it after `seconds` and return None."""
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
            self._lose("deleted")
        except Conflict:
            await self._reread()
        except ClusterError as error:
            log.warning("cannot renew lease %s: %s", self._name, error)
        else:
            self._held(renewed, started)

    async def _reread(self) -> None:
        """Read the version to renew after a conflict. Raises LeaseLost if the Lease has another holder."""
        try:
            present = await self._cluster.get(LEASE, self._name, self._namespace)
        except ClusterError as error:
            log.warning("cannot read lease %s: %s", self._name, error)
            return
        spec = present.get("spec") or {}
        if spec.get("holderIdentity") != self._identity or _transitions(present) != self.fencing:
            self._lose(f"the holder is {spec.get('holderIdentity')!r}")
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
        """Return whether the Lease has no holder, or was observed for its whole duration without a renewal."""
        spec = lease.get("spec") or {}
        if spec.get("holderIdentity") in (None, "", self._identity):
            return True
        now = self._clock.monotonic()
        if spec != self._observed:  # other changes, such as a label, are not renewals
            self._observed, self._observed_at = spec, now
        return now - self._observed_at >= float(spec.get("leaseDurationSeconds") or self._duration)

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
    """Return a time in RFC 3339 with microseconds, the format of a Lease."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
