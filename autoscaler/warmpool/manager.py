"""Keeps the members of WarmPools: the edge of `pool.plan`, which sees the cluster and does what the plan says.

All that decides is read from Pods, Deployments and WarmPools; in memory are only the starts of the last hour, the pause
after a failure, and what was asked for and has not shown yet. So a new process, or the next leader, goes on with the
members that are there.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass, field
from typing import Final

from autoscaler.config import WarmStart
from autoscaler.warmpool.calm import Calms
from autoscaler.warmpool.claims.keys import PoolKey
from autoscaler.warmpool.claims.marks import LABEL_POOL, LABEL_SEED
from autoscaler.warmpool.claims.pods import is_claimed
from autoscaler.warmpool.observed import make_member, member_name, member_of, newest_seed, seed_of, start_time
from autoscaler.warmpool.pause import Pause, after_failure
from autoscaler.warmpool.pool import FAILURES, Fault, Member, Observed, Plan, Seed, affordable, plan
from autoscaler.warmpool.reasons import PoolRule
from autoscaler.warmpool.sizing.arrivals import Arrivals, ClassKey
from autoscaler.warmpool.sizing.keep_warm import KeepWarm
from autoscaler.warmpool.sizing.policy import ASSUMED_REFILL, History, Sizing, refill_time, view_of, wanted_size
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
from clusters.runtime.expectations import Expectations
from clusters.runtime.informer import Informers
from clusters.runtime.recorder import Recorder

log = logging.getLogger(__name__)

MANAGER: Final = "knodel-autoscaler-pools"
"""Field manager of members and of WarmPool.status."""
GRACE: Final = 5
"""s for a free member to end: no request comes to it, and queue-proxy would wait 30 s for one that was on its way."""
CLAIM_PATIENCE: Final = 0.2
"""s; what a claim writes on a member concerns its pool later, and whoever waits for the claim now."""
BY_SEED: Final = "warm pool"
"""Index of Deployments by the pool that they are a seed of."""


@dataclass(slots=True)
class _Memory:
    """What is kept of a pool between two passes, and lost with the process."""

    uid: str
    since: float
    size_before: int
    refill: float = ASSUMED_REFILL
    pause: Pause | None = None
    pool_class: str = ""


@dataclass(slots=True)
class _Pass:
    """One look at one pool."""

    key: Key
    pool: Object
    spec: PoolSpec
    memory: _Memory
    deployment: Object | None
    seed: Seed | None
    pods: dict[str, Object]
    members: list[Member] = field(default_factory=list)


class PoolManager:
    """Creates, replaces and deletes the free members of every WarmPool; run `controller` after the informers synced.

    `informers` show WarmPools and Deployments, `pool_informers` the Pods with `LABEL_POOL`.
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
    ) -> None:
        self._cluster = cluster
        self._keys = keys
        self._clock = clock
        self._settings = settings
        self._recorder = recorder
        self._keep = keep
        self._pools = informers[WARM_POOL]
        self._deployments = informers[DEPLOYMENT]
        self._deployments.add_index(BY_SEED, lambda deployment: map(str, _pools_of_seed(deployment)))
        self._pods = pool_informers[POD]
        self._expectations = Expectations(self._pods, clock)
        self._arrivals = Arrivals()
        self._memories: dict[Key, _Memory] = {}
        self._calms = Calms(self._pods, clock)
        self._names = random.Random()  # noqa: S311 - names, not secrets
        self.controller = Controller("warm pools", self.reconcile)
        self.controller.watches(self._pools)
        self.controller.watches_mapped(self._deployments, _pools_of_seed)
        self.controller.watches_owned(self._pods, WARM_POOL, lambda _, pod: CLAIM_PATIENCE if is_claimed(pod) else 0.0)

    def note_start(self, namespace: str, pool_class: str, claimed: bool) -> None:
        """A replica of a revision of that class started, by a claim or cold: what size `auto` follows."""
        self._arrivals.note(ClassKey(namespace, pool_class), claimed, self._clock.monotonic())
        for key, memory in self._memories.items():
            if key.namespace == namespace and memory.pool_class == pool_class:
                self.controller.queue.add_after(key, CLAIM_PATIENCE)

    async def reconcile(self, key: Key) -> float | None:
        """One pass; returns the seconds until the next look. Raises what the cluster raises."""
        pool = self._pools.get(key.name, key.namespace)
        if pool is None or is_deleting(pool):  # its members go by garbage collection
            self._forget(key)
            return None
        seen = self._look(key, pool)
        self._learn(seen)
        failed = self._after_failures(seen)
        todo = self._plan(seen)
        for member, fault in todo.delete:
            await self._delete(seen, member, fault)
        calm_after = self._calms.left(key)
        refused = await self._create(seen, 0 if calm_after else todo.create)
        if todo.delete or todo.create:
            todo = self._plan(self._look(key, pool))  # what is left to do, and why
        await self._write_status(seen, todo)
        if failed or refused:
            await self._tell(seen)
        return min(self._next_look(seen.memory), calm_after or self._settings.look)

    def _forget(self, key: Key) -> None:
        memory = self._memories.pop(key, None)
        self._calms.forget(key)
        if memory is not None:
            self._keep.drop(ClassKey(key.namespace, memory.pool_class))

    # --- seeing ---

    def _look(self, key: Key, pool: Object) -> _Pass:
        deployment = newest_seed(self._deployments.indexed(BY_SEED, str(key)))
        pods = {
            name_of(pod): pod
            for pod in self._pods.indexed("owner", uid_of(pool))
            if labels_of(pod).get(LABEL_POOL) == key.name and not self._expectations.is_deleting(pod)
        }
        return _Pass(
            key=key,
            pool=pool,
            spec=read_spec(pool),
            memory=self._memory(key, pool),
            deployment=deployment,
            seed=None if deployment is None else seed_of(deployment),
            pods=pods,
            members=[member_of(pod, self._keys) for pod in pods.values()],
        )

    def _memory(self, key: Key, pool: Object) -> _Memory:
        memory = self._memories.get(key)
        if memory is None or memory.uid != uid_of(pool):
            size = int((pool.get("status") or {}).get("size") or 0)
            memory = self._memories[key] = _Memory(uid_of(pool), self._clock.monotonic(), size)
        return memory

    def _learn(self, seen: _Pass) -> None:
        """Take from what is seen: how long starts take, that they work again, and the present class."""
        memory = seen.memory
        measured = [seconds for pod in seen.pods.values() if (seconds := start_time(pod)) is not None]
        memory.refill = refill_time(measured, memory.refill)
        pause = memory.pause
        if pause is not None and any(member.ready and member.created > pause.since for member in seen.members):
            memory.pause = None
        if seen.seed is not None and seen.seed.pool_class != memory.pool_class:
            former, memory.pool_class = memory.pool_class, seen.seed.pool_class
            before = ClassKey(seen.key.namespace, former)
            self._arrivals.carry_over(before, ClassKey(seen.key.namespace, memory.pool_class))
            self._keep.drop(before)

    def _after_failures(self, seen: _Pass) -> bool:
        """Whether members failed, which makes a pause."""
        failed = [member for member in seen.members if member.fault in FAILURES and not member.claimed]
        if failed:
            values = {"pod": failed[0].name, "what": str(failed[0].fault).removeprefix("it ")}
            self._pause(seen, PoolRule.FAILING, values)
        return bool(failed)

    def _plan(self, seen: _Pass) -> Plan:
        now = self._clock.monotonic()
        observed = Observed(
            spec=seen.spec,
            sizing=self._sizing(seen, now),
            seed=seen.seed,
            members=seen.members,
            unseen=self._expectations.creating(uid_of(seen.pool)),
            pause=seen.memory.pause,
            burst=self._settings.create_burst,
        )
        return plan(observed, self._clock.now(), now)

    def _sizing(self, seen: _Pass, now: float) -> Sizing:
        memory = seen.memory
        where = ClassKey(seen.key.namespace, memory.pool_class)
        history = History(self._arrivals.of(where, now), memory.since, memory.size_before)
        view = view_of(seen.spec, affordable(seen.spec, seen.seed), history, memory.refill, now)
        planned = None if seen.seed is None else self._keep.plan(where, view)
        return wanted_size(seen.spec, history, memory.refill, now, planned)

    def _next_look(self, memory: _Memory) -> float:
        pause = memory.pause
        left = self._settings.look if pause is None else pause.until - self._clock.monotonic()
        return min(self._settings.look, left) if left > 0 else self._settings.look

    # --- doing ---

    async def _delete(self, seen: _Pass, member: Member, fault: Fault) -> None:
        """Delete the member as it was seen: one that was claimed in this moment is another version, and stays."""
        pod = seen.pods[member.name]
        log.info("pool %s: %s goes: %s", seen.key, member.name, fault)
        self._expectations.expect_deletion(pod)
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
            return
        except Conflict:
            self._expectations.deletion_failed(pod)  # its change wakes the next pass
        except BaseException:
            self._expectations.deletion_failed(pod)
            raise

    async def _create(self, seen: _Pass, number: int) -> bool:
        """Create that many, one after the other; whether the cluster refused one."""
        if seen.deployment is None:
            return False
        for _ in range(number):
            name = member_name(seen.key.name, self._names)
            try:
                await self._create_one(seen.pool, seen.deployment, name)
            except (Forbidden, Invalid) as error:
                what = str(error).replace(name, f"{seen.key.name}-…")  # the same words each time, for the Event's count
                self._pause(seen, PoolRule.REFUSED, {"what": what})
                return True
            if seen.memory.pause is not None and seen.memory.pause.rule is PoolRule.REFUSED:
                seen.memory.pause = None
        return False

    async def _create_one(self, pool: Object, deployment: Object, name: str) -> None:
        key = Key(namespace_of(pool), name)
        self._expectations.expect_creation(uid_of(pool), key)
        try:
            await self._cluster.create(POD, make_member(pool, deployment, name, self._keys), manager=MANAGER)
        except BaseException:
            self._expectations.creation_failed(uid_of(pool), key)
            raise

    def _pause(self, seen: _Pass, rule: PoolRule, values: dict[str, str]) -> None:
        now, monotonic = self._clock.now(), self._clock.monotonic()
        seen.memory.pause = after_failure(seen.memory.pause, rule, values, now, monotonic)

    # --- telling ---

    async def _write_status(self, seen: _Pass, todo: Plan) -> None:
        wanted = make_status(seen.pool, todo, self._clock.now())
        if status_differs(seen.pool, wanted):
            await self._cluster.patch(
                WARM_POOL,
                seen.key.name,
                {"status": wanted},
                seen.key.namespace,
                manager=MANAGER,
                subresource="status",
            )

    async def _tell(self, seen: _Pass) -> None:
        """Record what makes the pause as an Event."""
        pause = seen.memory.pause
        if pause is not None:
            await self._recorder.event(WARM_POOL, seen.pool, "Warning", pause.rule.value, pause.cause.message)


def _pools_of_seed(deployment: Object) -> list[Key]:
    """The pool that this Deployment is a seed of."""
    name = labels_of(deployment).get(LABEL_SEED)
    return [Key(namespace_of(deployment), name)] if name else []
