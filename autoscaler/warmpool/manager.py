"""The manager of WarmPools' members: it reads the cluster and applies the plan of `pool.plan`.

All decisions follow from Pods, Deployments and WarmPools. Memory holds only the starts of the last hour, the back-off
after a failure, and requested members that the informer does not show yet. Therefore a new process, or the next leader,
continues with the existing members.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass, field
from typing import Final, Protocol

from autoscaler.config import WarmStart
from autoscaler.scaling.multi_scaler import Limit
from autoscaler.warmpool.claims.keys import PoolKey
from autoscaler.warmpool.claims.marks import LABEL_POOL, LABEL_SEED
from autoscaler.warmpool.claims.pods import is_claimed
from autoscaler.warmpool.conversion import make_member, member_name, member_of, newest_seed, seed_of, start_time
from autoscaler.warmpool.creation_backoff import CreationBackoff, next_backoff
from autoscaler.warmpool.debounce import ClaimDebounce
from autoscaler.warmpool.pool import FAILURES, Fault, PoolMember, PoolObservation, PoolPlan, PoolSeed, affordable, plan
from autoscaler.warmpool.reasons import PoolRule
from autoscaler.warmpool.sizing.arrivals import Arrivals, ClassKey
from autoscaler.warmpool.sizing.keep_warm import KeepWarm
from autoscaler.warmpool.sizing.policy import ASSUMED_REFILL, StartHistory, refill_time, view_of, wanted_size
from autoscaler.warmpool.spec import PoolSpec, read_spec
from autoscaler.warmpool.status import make_status, status_differs
from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import Conflict, Forbidden, Invalid, NotFound
from clusters.base.objects import (
    DEPLOYMENT,
    POD,
    WARM_POOL,
    Key,
    Object,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
    version_of,
)
from clusters.runtime.controller import Controller
from clusters.runtime.informer import Informers
from clusters.runtime.recorder import Recorder

log = logging.getLogger(__name__)

MANAGER: Final = "knodel-autoscaler-pools"
"""Field manager of members and of WarmPool.status."""
GRACE: Final = 5
"""Seconds for the termination of a free member: it has no requests, and queue-proxy would wait 30 s for some."""
CLAIM_DELAY: Final = 0.2
"""Seconds until a claim's write on a member triggers its pool, because the claim's caller is waiting."""
BY_SEED: Final = "warm pool"
"""Index of Deployments by their pool, for seeds."""


@dataclass(slots=True)
class _Memory:
    """State of a pool between passes, which is lost with the process."""

    uid: str
    since: float
    size_before: int
    refill: float = ASSUMED_REFILL
    backoff: CreationBackoff | None = None
    pool_class: str = ""


@dataclass(slots=True)
class _Pass:
    """The objects of one pass over one pool."""

    key: Key
    pool: Object
    spec: PoolSpec
    memory: _Memory
    deployment: Object | None
    seed: PoolSeed | None
    pods: dict[str, Object]
    members: list[PoolMember] = field(default_factory=list)


class PoolGpus(Protocol):
    """The GPUs that warm pools may have."""

    def observe_pool(self, key: Key, pool: Object, template: Object, size: int) -> None:
        """Record a pool that wants `size` free members with this Pod template."""
        ...

    def forget_pool(self, key: Key) -> None:
        """Delete a pool that is gone."""
        ...

    def pool_limit(self, key: Key) -> Limit | None:
        """Return the limit of a pool that cannot have all of its members."""
        ...


class PoolManager:
    """Creates, replaces and deletes the free members of every WarmPool. Run `controller` after the informers have
    synced.

    `informers` cache WarmPools and Deployments, `pool_informers` the Pods with `LABEL_POOL`.
    """

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        pool_informers: Informers,
        *,
        keys: PoolKey,
        clock: Clock,
        settings: WarmStart,
        recorder: Recorder,
        keep: KeepWarm,
        gpus: PoolGpus | None = None,
    ) -> None:
        self._cluster = cluster
        self._gpus = gpus
        self._keys = keys
        self._clock = clock
        self._settings = settings
        self._recorder = recorder
        self._keep = keep
        self._pools = informers[WARM_POOL]
        self._deployments = informers[DEPLOYMENT]
        self._deployments.add_index(BY_SEED, lambda deployment: map(str, _pools_of_seed(deployment)))
        self._pods = pool_informers[POD]
        self._arrivals = Arrivals()
        self._memories: dict[Key, _Memory] = {}
        self._debounce = ClaimDebounce(self._pods, clock)
        self._names = random.Random()  # noqa: S311 - names, not secrets
        self.controller = Controller("warm pools", self.reconcile)
        self.controller.watches(self._pools)
        self.controller.watches_mapped(self._deployments, _pools_of_seed)
        self.controller.watches_owned(self._pods, WARM_POOL, lambda _, pod: CLAIM_DELAY if is_claimed(pod) else 0.0)

    def record_start(self, namespace: str, pool_class: str, claimed: bool) -> None:
        """Record a start of a replica of that class, by a claim or cold. The size of `auto` pools follows these
        starts.
        """
        self._arrivals.record(ClassKey(namespace, pool_class), claimed, self._clock.monotonic())
        for key, memory in self._memories.items():
            if key.namespace == namespace and memory.pool_class == pool_class:
                self.controller.queue.add_after(key, CLAIM_DELAY)

    async def reconcile(self, key: Key) -> float | None:
        """Run one pass; return the seconds until the next one. Raises the cluster's errors."""
        pool = self._pools.get(key.name, key.namespace)
        if pool is None or is_deleting(pool):  # garbage collection deletes its members
            self._debounce.forget(key)
            if self._gpus is not None:
                self._gpus.forget_pool(key)
            if (memory := self._memories.pop(key, None)) is not None:
                self._keep.drop(ClassKey(key.namespace, memory.pool_class))
            return None
        seen = self._observe(key, pool)
        self._update_memory(seen)
        failed = [member for member in seen.members if member.fault in FAILURES and not member.claimed]
        if failed:
            what = str(failed[0].fault).removeprefix("it ")
            self._back_off(seen, PoolRule.FAILING, {"pod": failed[0].name, "what": what})
        todo = self._plan(seen)
        for member, fault in todo.delete:
            await self._delete(seen, member, fault)
        quiet_after = self._debounce.remaining(key)
        refused = await self._create(seen, 0 if quiet_after else todo.create)
        if todo.delete or todo.create:
            todo = self._plan(self._observe(key, pool))  # for the status
        status = make_status(seen.pool, todo, self._clock.now())
        if status_differs(seen.pool, status):
            patch = {"status": status}
            await self._cluster.patch(WARM_POOL, key.name, patch, key.namespace, manager=MANAGER, subresource="status")
        backoff = seen.memory.backoff
        if backoff is not None and (failed or refused):
            await self._recorder.event(WARM_POOL, seen.pool, "Warning", backoff.rule.value, backoff.cause.message)
        left = 0.0 if backoff is None else backoff.until - self._clock.monotonic()
        waits = (self._settings.resync, quiet_after, left)
        return min(wait for wait in waits if wait > 0)

    # --- observe ---

    def _observe(self, key: Key, pool: Object) -> _Pass:
        memory = self._memories.get(key)
        if memory is None or memory.uid != uid_of(pool):
            size = int((pool.get("status") or {}).get("size") or 0)
            memory = self._memories[key] = _Memory(uid_of(pool), self._clock.monotonic(), size)
        deployment = newest_seed(self._deployments.indexed(BY_SEED, str(key)))
        pods = {
            name_of(pod): pod
            for pod in self._pods.indexed("owner", uid_of(pool))
            if labels_of(pod).get(LABEL_POOL) == key.name and not self._pods.own_writes.is_deleting(pod)
        }
        return _Pass(
            key=key,
            pool=pool,
            spec=read_spec(pool),
            memory=memory,
            deployment=deployment,
            seed=None if deployment is None else seed_of(deployment),
            pods=pods,
            members=[member_of(pod, self._keys) for pod in pods.values()],
        )

    def _update_memory(self, seen: _Pass) -> None:
        """Update the measured start time, the back-off after a success, and the pool's class."""
        memory = seen.memory
        measured = [seconds for pod in seen.pods.values() if (seconds := start_time(pod)) is not None]
        memory.refill = refill_time(measured, memory.refill)
        backoff = memory.backoff
        if backoff is not None and any(member.ready and member.created > backoff.since for member in seen.members):
            memory.backoff = None
        if seen.seed is not None and seen.seed.pool_class != memory.pool_class:
            former, memory.pool_class = memory.pool_class, seen.seed.pool_class
            before = ClassKey(seen.key.namespace, former)
            self._arrivals.carry_over(before, ClassKey(seen.key.namespace, memory.pool_class))
            self._keep.drop(before)

    def _plan(self, seen: _Pass) -> PoolPlan:
        now, memory = self._clock.monotonic(), seen.memory
        where = ClassKey(seen.key.namespace, memory.pool_class)
        history = StartHistory(self._arrivals.of(where, now), memory.since, memory.size_before)
        view = view_of(seen.spec, affordable(seen.spec, seen.seed), history, memory.refill, now)
        planned = None if seen.seed is None else self._keep.plan(where, view)
        sizing = wanted_size(seen.spec, history, memory.refill, now, planned)
        limit = None
        if self._gpus is not None and seen.deployment is not None:
            self._gpus.observe_pool(seen.key, seen.pool, seen.deployment["spec"]["template"], sizing.size)
            limit = self._gpus.pool_limit(seen.key)
        observed = PoolObservation(
            spec=seen.spec,
            sizing=sizing,
            seed=seen.seed,
            members=seen.members,
            unseen=len(self._pods.own_writes.created(uid_of(seen.pool))),
            backoff=seen.memory.backoff,
            burst=self._settings.create_burst,
            limit=limit,
        )
        return plan(observed, self._clock.now(), now)

    # --- apply ---

    async def _delete(self, seen: _Pass, member: PoolMember, fault: Fault) -> None:
        """Delete exactly the observed version of the member: one that was claimed meanwhile stays."""
        pod = seen.pods[member.name]
        log.info("pool %s: deleting %s: %s", seen.key, member.name, fault)
        try:
            await self._cluster.delete(
                POD,
                member.name,
                seen.key.namespace,
                uid=uid_of(pod),
                resource_version=version_of(pod),
                grace_period=GRACE,
            )
        except NotFound:
            pass
        except Conflict:
            return  # its change triggers the next pass
        self._pods.own_writes.record_deletion(pod)

    async def _create(self, seen: _Pass, number: int) -> bool:
        """Create that many members, one after the other. Return whether the cluster rejected one."""
        if seen.deployment is None:
            return False
        for _ in range(number):
            name = member_name(seen.key.name, self._names)
            try:
                member = make_member(seen.pool, seen.deployment, name, self._keys)
                self._pods.own_writes.record(await self._cluster.create(POD, member, manager=MANAGER))
            except (Forbidden, Invalid) as error:
                what = str(error).replace(name, f"{seen.key.name}-…")  # constant text, so that Events are counted
                self._back_off(seen, PoolRule.REFUSED, {"what": what})
                return True
            if seen.memory.backoff is not None and seen.memory.backoff.rule is PoolRule.REFUSED:
                seen.memory.backoff = None
        return False

    def _back_off(self, seen: _Pass, rule: PoolRule, values: dict[str, str]) -> None:
        now, monotonic = self._clock.now(), self._clock.monotonic()
        seen.memory.backoff = next_backoff(seen.memory.backoff, rule, values, now, monotonic)


def _pools_of_seed(deployment: Object) -> list[Key]:
    """Return the pool of which this Deployment is a seed."""
    name = labels_of(deployment).get(LABEL_SEED)
    return [Key(namespace_of(deployment), name)] if name else []
