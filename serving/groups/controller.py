"""The controller of groups: keeps the worker Pods of every leader, and writes their state on the leader's Pod.

`plan.make_plan` makes all decisions from the Pods. Only the back-off after lost workers and the last refusal
are in memory. The garbage collector deletes the workers of a leader that is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from clusters.base.api import Cluster
from clusters.base.backoff import Backoff
from clusters.base.clock import Clock
from clusters.base.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from clusters.base.objects import POD, Key, Object, key_of, name_of, namespace_of, uid_of
from clusters.runtime.controller import Controller
from clusters.runtime.informer import Informers
from clusters.runtime.recorder import Recorder
from serving.groups.plan import LOST, Leader, Phase, Plan, Worker, make_plan
from serving.groups.pods import GRACE, POD_GROUP, leader_of, make_pod_group, make_worker, worker_of, workers_of
from serving.groups.states import read_state, state_patch
from serving.types.lifecycle import State
from serving.types.workers import Workers

log = logging.getLogger(__name__)

MANAGER: Final = "knodel-groups"
"""Field manager of workers."""
COMPONENT: Final = "knodel-groups"
"""The source of Events about leaders, for the Recorder."""
BACKOFF: Final = Backoff(first=1.0, largest=120.0)
STABLE: Final = 300.0
"""Seconds without a loss after which the next one is replaced at once."""
UNSEEN_RETRY: Final = 1.0
"""Seconds until the next pass when the informer does not show all created workers yet. It usually shows them sooner."""
REFUSED_RETRY: Final = 15.0
"""Seconds until a refused creation is repeated: a quota may have been raised."""


@dataclass(slots=True)
class _Memory:
    """The back-off and the last refusal of a leader; lost with the process."""

    uid: str
    losses: int = 0
    lost_at: float = float("-inf")
    until: float = 0.0
    refusal: str = ""


class GroupController:
    """Runs a pass over a leader's Pod when it or one of its workers changes. Create it before the informers run.

    `informers` must cache the Pods of groups.
    """

    def __init__(self, cluster: Cluster, informers: Informers, *, clock: Clock, recorder: Recorder) -> None:
        self._cluster = cluster
        self._informers = informers
        self._pods = informers[POD]
        self._clock = clock
        self._recorder = recorder
        self._memories: dict[Key, _Memory] = {}
        self.controller = Controller("groups", self.reconcile)
        self.controller.watches_mapped(self._pods, lambda pod: [key_of(pod)] if workers_of(pod) is not None else [])
        self.controller.watches_owned(self._pods, POD)

    async def run(self) -> None:
        """Run until cancelled. Passes begin when every informer has its first list."""
        await self._informers.synced()
        await self.controller.run()

    async def reconcile(self, key: Key) -> float | None:
        """Run one pass; return the seconds until the next one, or None. Raises the cluster's errors."""
        pod = self._pods.get(key.name, key.namespace)
        spec = workers_of(pod) if pod is not None else None
        if pod is None or spec is None:
            self._memories.pop(key, None)
            return None
        memory = self._memories.get(key)
        if memory is None or memory.uid != uid_of(pod):
            memory = self._memories[key] = _Memory(uid_of(pod))
        if self._pods.own_writes.created(uid_of(pod)):
            return UNSEEN_RETRY
        pods = {name_of(one): one for one in self._pods.indexed("owner", uid_of(pod))}
        leader, workers = leader_of(pod), [self._worker(one) for one in pods.values()]
        now = self._clock.monotonic()
        plan = make_plan(spec, leader, workers, waits=now < memory.until, refusal=memory.refusal)
        await self._delete(plan, pods)
        self._count_losses(memory, plan, now)
        state = plan.state
        if plan.create:
            memory.refusal = await self._create(pod, leader, spec, plan.create)
            if memory.refusal:
                memory.until = now + REFUSED_RETRY
                state = make_plan(spec, leader, workers, refusal=memory.refusal).state
        elif now >= memory.until:
            memory.refusal = ""
        await self._report(pod, state)
        left = memory.until - self._clock.monotonic()
        return left if left > 0 else None

    def _worker(self, pod: Object) -> Worker:
        worker = worker_of(pod)
        return replace(worker, phase=Phase.DELETED) if self._pods.own_writes.is_deleting(pod) else worker

    @staticmethod
    def _count_losses(memory: _Memory, plan: Plan, now: float) -> None:
        """Start the back-off after a loss: none for the first one, longer for each that follows soon."""
        if not plan.lost:
            return
        memory.losses = 0 if now - memory.lost_at > STABLE else memory.losses + 1
        memory.lost_at = now
        if memory.losses:
            memory.until = now + BACKOFF.delay(memory.losses - 1)

    async def _delete(self, plan: Plan, pods: dict[str, Object]) -> None:
        for name, why in plan.delete:
            pod = pods[name]
            log.info("deleting worker %s: %s", key_of(pod), why)
            with suppress(NotFound, Conflict):  # gone meanwhile, or replaced by another Pod
                await self._cluster.delete(POD, name, namespace_of(pod), uid=uid_of(pod), grace_period=GRACE)
                self._pods.own_writes.record_deletion(pod)

    async def _create(self, pod: Object, leader: Leader, spec: Workers, ranks: Sequence[int]) -> str:
        """Create the workers of these ranks. Return why the cluster refuses them; empty if it does not."""
        try:
            if (group := make_pod_group(pod, spec)) is not None:
                with suppress(AlreadyExists):
                    await self._cluster.create(POD_GROUP, group, manager=MANAGER)
            for rank in ranks:
                made = make_worker(pod, leader, spec, rank)
                self._pods.own_writes.record(await self._cluster.create(POD, made, manager=MANAGER))
        except (AlreadyExists, Forbidden, Invalid, NotFound) as error:  # NotFound: the cluster lacks Volcano's kinds
            log.warning("the workers of %s are refused: %s", key_of(pod), error)
            return str(error)
        return ""

    async def _report(self, pod: Object, state: State) -> None:
        """Write a changed state on the leader's Pod, and record an Event for a loss."""
        former = read_state(pod)
        if state == former:
            return
        with suppress(NotFound):  # deleted meanwhile
            await self._cluster.patch(POD, name_of(pod), state_patch(state), namespace_of(pod), manager=MANAGER)
        if state.reason == LOST and (former is None or former.reason != LOST):
            await self._recorder.event(POD, pod, "Warning", state.reason, state.message)
