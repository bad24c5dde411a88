"""The sharing of GPUs between Revisions, warm pools and elastic jobs.

Revisions and pools register what they want. The allocator then decides over all of them and the elastic jobs: once a
tick, and at once when a Revision wants another number of replicas. While everything fits, nothing is limited. A
resource that no node has is not limited either: a node may be added, or the cluster does not show its nodes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from autoscaler.gpu.allocator import Allocation, AllocatorState, allocate, exceeds
from autoscaler.gpu.claims import AllocationSettings, Claim, Place, Shape
from autoscaler.gpu.elastic import ElasticJob, read_job
from autoscaler.gpu.holdings import Holder, Snapshot
from autoscaler.gpu.owners import LABEL_MODEL, Owner
from autoscaler.gpu.page import gpu_families
from autoscaler.gpu.parts import claims_in_parts, has_parts, in_units, places_in_parts, settings_in_parts
from autoscaler.gpu.shapes import ANNOTATION_PRIORITY, ANNOTATION_TYPES, ANNOTATION_WEIGHT, shape_of
from autoscaler.gpu.watch import GpuWatch
from autoscaler.scaling.multi_scaler import Limit
from autoscaler.scaling.table import IntArray
from clusters.base.clock import Clock
from clusters.base.objects import (
    Key,
    Kind,
    Object,
    annotations_of,
    condition_of,
    is_deleting,
    key_of,
    labels_of,
    uid_of,
)
from clusters.net.exposition import Family
from clusters.runtime.informer import Informer

log = logging.getLogger(__name__)


class JobKey(NamedTuple):
    """An elastic job."""

    kind: Kind
    key: Key

    @property
    def holder(self) -> Holder:
        """The holder of its Pods."""
        return Holder(self.kind.kind, self.key)


class _Rank(NamedTuple):
    priority: int
    weight: float


@dataclass(slots=True)
class _Demand:
    """The demand of a Revision or a warm pool. `more` are replicas beyond the decided ones, as during a restart."""

    kind: Literal["serving", "pool"]
    owner: Owner
    shape: Shape
    priority: int
    weight: float
    least: int = 0
    want: int = 0
    more: int = 0


@dataclass(frozen=True, slots=True)
class _Decided:
    """The last decision: claims by name, their names by holder, limits of those that get too little, sizes of jobs."""

    allocation: Allocation = field(default_factory=lambda: Allocation({}, AllocatorState(), {}))
    claims: Mapping[str, Claim] = field(default_factory=dict)
    names: Mapping[Holder, str] = field(default_factory=dict)
    limits: Mapping[Holder, Limit] = field(default_factory=dict)
    sizes: Mapping[JobKey, int] = field(default_factory=dict)
    snapshot: Snapshot = field(default_factory=Snapshot)


class GpuSharing:
    """Limits replicas and sizes jobs by GPUs. Run `run`; it decides every `tick` seconds where time matters.

    Callbacks: `on_limits` gets the Revisions and warm pools whose limits have changed, `on_sizes` the elastic jobs
    whose sizes have.
    """

    def __init__(self, watch: GpuWatch, settings: AllocationSettings, clock: Clock, tick: float) -> None:
        self._watch = watch
        self._settings = settings
        self._clock = clock
        self._tick = tick
        self._demands: dict[Holder, _Demand] = {}
        self._since: dict[str, float] = {}
        self._decided = _Decided()
        self._due = asyncio.Event()
        self.on_limits: Callable[[Sequence[Holder]], None] = lambda _: None
        self.on_sizes: Callable[[Sequence[JobKey]], None] = lambda _: None
        watch.subscribe(self._due.set)

    @property
    def elastic(self) -> Mapping[Kind, Informer]:
        """The informers of elastic jobs by kind."""
        return self._watch.elastic

    # --- what is wanted ---

    def observe_revision(self, key: Key, pod_autoscaler: Object, template: Object, least: int, more: int) -> None:
        """Record a Revision: its Pod template, its minimum, and the replicas `more` than the decided ones."""
        model = labels_of(pod_autoscaler).get(LABEL_MODEL)
        owner = Owner("Model", key.namespace, model) if model else Owner("Revision", key.namespace, key.name)
        given = annotations_of(pod_autoscaler)
        rank = _Rank(
            int(_number(given.get(ANNOTATION_PRIORITY), 0.0)), _number(given.get(ANNOTATION_WEIGHT), 1.0) or 1.0
        )
        holder = Holder.revision(key)
        demand = _demand("serving", owner, template, given.get(ANNOTATION_TYPES, ""), rank)
        if demand is not None:
            former = self._demands.get(holder)
            demand.least, demand.more, demand.want = least, more, former.want if former is not None else 0
        self._register(holder, demand)

    def observe_pool(self, key: Key, pool: Object, template: Object, size: int) -> None:
        """Record a warm pool that wants `size` free members with this Pod template."""
        owner, spec = Owner("WarmPool", key.namespace, key.name), pool.get("spec") or {}
        rank = _Rank(int(spec.get("priority") or 0), float(spec.get("weight") or 1.0))
        types = ",".join(((spec.get("template") or {}).get("resources") or {}).get("gpuTypes") or ())
        demand = _demand("pool", owner, template, types, rank)
        if demand is not None:
            demand.want = size
        self._register(Holder.pool(key), demand)

    def forget_revision(self, key: Key) -> None:
        """Delete a Revision that is gone."""
        self._register(Holder.revision(key), None)

    def forget_pool(self, key: Key) -> None:
        """Delete a warm pool that is gone."""
        self._register(Holder.pool(key), None)

    def _register(self, holder: Holder, demand: _Demand | None) -> None:
        if demand == self._demands.get(holder):
            return
        if demand is None:
            del self._demands[holder]
        else:
            self._demands[holder] = demand
        self._watch.use(holder, needed=demand is not None)
        self._due.set()

    # --- what is granted ---

    def limits(self, keys: Sequence[Key], wanted: IntArray, now: float) -> Mapping[int, Limit]:
        """Return the limits of Revisions that cannot have what they want, by index in `keys`.

        It decides first if a Revision wants another number of replicas than before.
        """
        if not self._demands:
            return {}
        found = {index: holder for index, key in enumerate(keys) if (holder := Holder.revision(key)) in self._demands}
        changed = {index: holder for index, holder in found.items() if self._demands[holder].want != wanted[index]}
        for index, holder in changed.items():
            self._demands[holder].want = int(wanted[index])
        if changed:
            self.decide(now)
        limits = self._decided.limits
        return {
            index: limits[holder]
            for index, holder in found.items()
            if holder in limits and limits[holder].replicas < wanted[index]
        }

    def surge(self, key: Key, desired: int, more: int) -> int:
        """Return how many of the replicas `more` than the decided ones a Revision may have."""
        limit = self._decided.limits.get(Holder.revision(key))
        return more if limit is None else max(0, min(more, limit.replicas - desired))

    def is_reclaimed(self, key: Key) -> bool:
        """Return whether a Revision may have no replica, although it wants some."""
        limit = self._decided.limits.get(Holder.revision(key))
        return limit is not None and limit.replicas == 0

    def waiting(self, key: Key, pods: Iterable[Object]) -> str:
        """Return why a Revision with these Pods waits for GPUs; empty if it does not.

        It also waits while granted GPUs are still held: until the Pods that give them have ended.
        """
        holder = Holder.revision(key)
        if (limit := self._decided.limits.get(holder)) is not None:
            return limit.why
        grant = self._decided.allocation.grants.get(self._decided.names.get(holder, ""))
        if grant is None or not grant.total or not any(_lacks(pod, grant.resource) for pod in pods):
            return ""
        return grant.message

    def pool_limit(self, key: Key) -> Limit | None:
        """Return the limit of a warm pool that cannot have all of its members."""
        return self._decided.limits.get(Holder.pool(key))

    def size(self, job: JobKey) -> int | None:
        """Return the size that an elastic job should have; None if it is not decided here."""
        return self._decided.sizes.get(job)

    def shape(self, job: JobKey) -> Shape:
        """Return the GPUs of one worker of a job that has a `size`."""
        return self._decided.claims[self._decided.names[job.holder]].shape

    def gainers(self, job: JobKey) -> Sequence[str]:
        """Return the names of those to whom a job gives GPUs."""
        name, grants = self._decided.names.get(job.holder, ""), self._decided.allocation.grants
        return sorted(gainer for gainer, grant in grants.items() if any(gift.giver == name for gift in grant.gifts))

    def victims(self, job: JobKey) -> Sequence[Object]:
        """Return the Pods of a job on nodes where others need its GPUs, if the scheduler does not preempt them."""
        decided, name = self._decided, self._decided.names.get(job.holder, "")
        by_node = decided.allocation.victims.get(name, {})
        if not by_node or decided.claims[name].shape.resource not in decided.snapshot.devices:
            return []
        pods = decided.snapshot.pods.get(job.holder, ())
        return [
            pod
            for node, number in by_node.items()
            for pod in sorted((pod for pod in pods if pod["spec"]["nodeName"] == node), key=_last_first)[:number]
        ]

    def families(self) -> Iterator[Family]:
        """Yield the metrics of the last decision; those of nodes only while something has GPUs."""
        decided = self._decided
        return gpu_families(decided.snapshot.inventory.nodes, decided.claims.values(), decided.allocation.grants)

    # --- deciding ---

    async def run(self) -> None:
        """Watch the cluster and decide until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch.run(), name="GPU inventory")
            while True:
                await self._due.wait()
                self._due.clear()
                try:
                    self.decide(self._clock.monotonic())
                except Exception:  # a failed decision must not stop the next one
                    log.exception("internal error: GPUs were not allocated")
                    self._due.set()
                await self._clock.sleep(self._tick)

    def decide(self, now: float) -> None:
        """Decide over all claims, and pass changes to the callbacks. `now` is in monotonic seconds."""
        jobs = {
            JobKey(kind, key_of(obj)): job
            for kind, informer in self._watch.elastic.items()
            for obj in informer
            if (job := read_job(kind, obj)) is not None and not job.over
        }
        self._watch.use("elastic jobs", needed=bool(jobs))
        state = self._decided.allocation.state
        if not self._watch.synced or not (self._demands or jobs):
            self._publish(_Decided(Allocation({}, state, {})))
            return
        snapshot = self._watch.snapshot()
        claims, names = self._make_claims(snapshot, jobs, now)
        places = list(snapshot.places(names))
        allocation = self._allocate(places, list(claims.values()), now, exact=bool(jobs))
        grants = allocation.grants
        limits = {
            holder: Limit(grants[name].replicas, grants[name].message)
            for holder, name in names.items()
            if holder in self._demands and name in grants and grants[name].replicas < claims[name].want
        }
        known = {place.resource for place in places}
        sizes = {
            job: grants[name].replicas
            for job in jobs
            if (name := names.get(job.holder, "")) in grants and claims[name].shape.resource in known
        }
        self._publish(_Decided(allocation, claims, names, limits, sizes, snapshot))

    def _allocate(self, places: Sequence[Place], claims: Sequence[Claim], now: float, *, exact: bool) -> Allocation:
        """Return the grants. There are none if everything fits, unless they must be `exact` or settings limit them."""
        state, settings = self._decided.allocation.state, self._settings
        exact = exact or bool(settings.reserve) or any(tenant.limit for tenant in settings.tenants.values())
        if parts := has_parts(claims):
            places, claims = places_in_parts(places), claims_in_parts(claims)
            settings = settings_in_parts(settings)
        if not (exact or exceeds(places, claims)):
            return Allocation({}, state, {})
        allocation = allocate(places, claims, settings, state, now)
        return in_units(allocation) if parts else allocation

    def _publish(self, decided: _Decided) -> None:
        former, self._decided = self._decided, decided
        limits, sizes = decided.limits, decided.sizes
        if changed := [one for one in {**former.limits, **limits} if former.limits.get(one) != limits.get(one)]:
            self.on_limits(changed)
        if moved := [job for job, size in sizes.items() if former.sizes.get(job) != size]:
            self.on_sizes(moved)
        if limits or sizes:  # time matters: free units are granted after a while
            self._due.set()

    def _make_claims(
        self, snapshot: Snapshot, jobs: Mapping[JobKey, ElasticJob], now: float
    ) -> tuple[dict[str, Claim], dict[Holder, str]]:
        """Return the claims by name, and the names by holder."""
        held = {holder: snapshot.held(holder) for holder in (*self._demands, *(job.holder for job in jobs))}
        live = {holder: demand for holder, demand in self._demands.items() if demand.want + demand.more or held[holder]}
        revisions = Counter(demand.owner for demand in live.values())
        names = {
            holder: str(demand.owner) if revisions[demand.owner] == 1 else f"{demand.owner} ({holder.key.name})"
            for holder, demand in live.items()
        }
        claims = {
            names[holder]: Claim(
                names[holder], holder.key.namespace, demand.kind, demand.shape, demand.want + demand.more,
                min(demand.least, demand.want), held[holder], demand.priority, demand.weight,
                leaving=snapshot.leaving(holder),
            )
            for holder, demand in live.items()
        }  # fmt: skip
        for job_key, job in jobs.items():
            if (shape := shape_of(job.template)) is None:
                continue
            shape = replace(shape, pods=shape.pods * job.pods)
            name = names[job_key.holder] = str(Owner(job_key.kind.kind, *job_key.key))
            holds, leaving = (
                {node: workers for node, pods in found.items() if (workers := pods // job.pods)}
                for found in (held[job_key.holder], snapshot.leaving(job_key.holder))
            )
            claims[name] = Claim(
                name, job_key.key.namespace, "training", shape, job.most, job.least, holds,
                since=self._since.setdefault(name, now), running=sum(holds.values()) >= job.least, leaving=leaving,
            )  # fmt: skip
        self._since = {name: since for name, since in self._since.items() if name in claims}
        return claims, names


def _demand(
    kind: Literal["serving", "pool"], owner: Owner, template: Object, types: str, rank: _Rank
) -> _Demand | None:
    """Return the demand of replicas with this Pod template; None without GPUs."""
    shape = shape_of(template, types)
    return None if shape is None else _Demand(kind, owner, shape, *rank)


def _number(text: str | None, default: float) -> float:
    try:
        return max(0.0, float(text)) if text else default
    except ValueError:  # serving writes only valid numbers
        return default


def _last_first(pod: Object) -> tuple[bool, str]:
    """Sort Pods that are being deleted before others."""
    return not is_deleting(pod), uid_of(pod)


def _lacks(pod: Object, resource: str) -> bool:
    """Return whether the scheduler has found no node with the GPUs of a Pod."""
    message = str((condition_of(pod, "PodScheduled") or {}).get("message", ""))
    return not (pod.get("spec") or {}).get("nodeName") and (resource in message or "allocate all claims" in message)
