"""Claims of warm-pool members for revisions that need replicas, called by the PodAutoscaler reconciler.

    begin     reserve → assign → label        the member serves
    (the reconciler scales the Deployment)
    finish    adopt                           the member is an ordinary replica

The whole state of a claim is written on its Pod. Therefore `finish` and `reap` also clean up after a process that died
between two steps (`marks` lists the states).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from autoscaler.config import WarmStart
from autoscaler.warmpool.claims.adoption import Adoption
from autoscaler.warmpool.claims.assignment import MemberAssignment, assignment_of, loads_anything
from autoscaler.warmpool.claims.caller import LoadCaller, LoadCallRefused
from autoscaler.warmpool.claims.claim import ClaimStep, ClaimSteps
from autoscaler.warmpool.claims.classes import format_of, pool_class
from autoscaler.warmpool.claims.keys import PoolKey
from autoscaler.warmpool.claims.marks import ANNOTATION_LOAD
from autoscaler.warmpool.claims.pods import ClaimRecord, is_claimed
from autoscaler.warmpool.members import Members
from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import KnodelError
from clusters.base.objects import Key, Object, is_deleting, key_of, namespace_of, uid_of
from clusters.net.endpoints import is_ready
from clusters.runtime.informer import Informers

log = logging.getLogger(__name__)

SPARED: Final = 1
"""Free members that a revision with ready replicas leaves for a revision without any, whose callers are waiting."""


@dataclass(frozen=True, slots=True)
class RevisionReplicas:
    """The replicas of a revision: `cold` ready ones that were never claimed, `claimed` Pods, and whether any is
    ready.
    """

    cold: int
    claimed: int
    any_ready: bool


def claims_wanted(desired: int, replicas: RevisionReplicas, free: int) -> int:
    """Return how many of `free` members to claim for a revision whose Deployment needs `desired` replicas. Pure.

    A claimed Pod counts as a replica even while it crashes, so a broken model takes one member and not all.
    """
    missing = desired - replicas.cold - replicas.claimed
    return max(0, min(missing, free - _spared(replicas)))


@dataclass(frozen=True, slots=True)
class _Request:
    """One call of `begin`; `tried` contains the uids of members that its claims used, `until` is when no further one
    begins.
    """

    key: Key
    deployment: Object
    assignment: MemberAssignment
    pool_class: str
    replicas: RevisionReplicas
    until: float
    tried: set[str] = field(default_factory=set)


class MemberClaims:
    """The claims for all revisions of this process. Calls for one revision must not overlap.

    `informers` cache WarmPools, Deployments, ReplicaSets and Pods of revisions, `pool_informers` Pods with
    `LABEL_POOL`; create this object before they run. `formats` returns the model format that a server of the revision
    detected, or an empty string. `log` receives each step.
    """

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        pool_informers: Informers,
        *,
        caller: LoadCaller,
        keys: PoolKey,
        clock: Clock,
        settings: WarmStart,
        formats: Callable[[Key], str],
        log: Callable[[ClaimStep], None],
    ) -> None:
        self._formats = formats
        self._clock = clock
        self._settings = settings
        self._members = Members(informers, pool_informers, keys=keys, clock=clock)
        self._steps = ClaimSteps(cluster, self._members, caller=caller, keys=keys, clock=clock, record=log)
        self._adoption = Adoption(cluster, informers, self._members, self._steps, clock, settings)
        self._by = f"{socket.gethostname()}-{secrets.token_hex(4)}"
        self._warned: set[Key] = set()
        self._refused: dict[Key, MemberAssignment] = {}  # assignments that a member rejected as invalid

    def available(self, key: Key, deployment: Object) -> int:
        """Return the number of free ready members for the revision, from memory; 0 if none can be claimed for it."""
        template = deployment["spec"]["template"]
        if ANNOTATION_LOAD not in ((template.get("metadata") or {}).get("annotations") or {}):
            return 0
        found = self._class(key, template)
        return len(self._members.free(namespace_of(deployment), found)) if found else 0

    async def begin(self, key: Key, deployment: Object, wanted: int, digest: str = "") -> int:
        """Reserve, assign and label, concurrently, as many members as the Deployment lacks until it has `wanted`
        replicas.

        `claims_wanted` determines the number. Returns how many additional members serve. When a claim fails, its
        reserved member is deleted and the next one is tried, until `WarmStart.assign_timeout` after the call. Then the
        caller starts cold replicas and calls again. Errors of members and of the cluster are not raised. `digest` is
        the recorded digest of a revision whose spec has none; while it is empty, such a revision claims no member.
        """
        if not digest and loads_anything(deployment["spec"]["template"]):
            return 0
        request = self._request(key, deployment, digest)
        if request is None:
            return 0
        free = len(self._members.free(key.namespace, request.pool_class))
        number = claims_wanted(wanted, request.replicas, free)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._claim_one(request)) for _ in range(number)]
        return sum(task.result() for task in tasks)

    async def finish(self, key: Key, deployment: Object) -> float | None:
        """Adopt the labelled members for which the ReplicaSet has room; delete those that waited too long.

        Returns the seconds until the next pass, or None when nothing is pending.
        """
        return await self._adoption.finish(key, deployment)

    async def reap(self) -> float | None:
        """Delete claimed members that no `finish` handles: of deleted revisions, or of abandoned claims.

        Returns the seconds until the next pass, or None when nothing is pending.
        """
        return await self._adoption.reap()

    def forget(self, key: Key) -> None:
        """Delete a revision that is gone; its Pods are left to `reap`."""
        self._warned.discard(key)
        self._refused.pop(key, None)

    def _request(self, key: Key, deployment: Object, digest: str) -> _Request | None:
        template = deployment["spec"]["template"]
        assignment = assignment_of(template, key.name, digest)
        if assignment is None or is_deleting(deployment):
            text = ((template.get("metadata") or {}).get("annotations") or {}).get(ANNOTATION_LOAD)
            if assignment is None and text is not None and key not in self._warned:
                self._warned.add(key)
                log.warning("%s: replicas start cold: the annotation %s is unreadable", key, ANNOTATION_LOAD)
            return None
        found = self._class(key, template)
        if not found or self._is_refused(key, assignment):
            return None
        pods = self._members.of_revision(key, deployment)
        replicas = RevisionReplicas(
            cold=sum(1 for pod in pods if is_ready(pod) and not is_claimed(pod)),
            claimed=sum(1 for pod in pods if is_claimed(pod)),
            any_ready=any(is_ready(pod) for pod in pods),
        )
        until = self._clock.monotonic() + self._settings.assign_timeout
        return _Request(key, deployment, assignment, found, replicas, until)

    def _class(self, key: Key, template: Object) -> str:
        """Return the class of members for the revision, empty while its model's format is unknown.

        A member with another engine would first have to import the right one. That takes longer than a cold start from
        a zygote, so no member is better than a wrong one.
        """
        model_format = format_of(template["spec"]) or self._formats(key)
        return pool_class(template, model_format) if model_format else ""

    async def _claim_one(self, request: _Request) -> bool:
        """Provide one replica: try members until one serves, none is left, or the time is over."""
        while True:
            free = self._members.free(request.key.namespace, request.pool_class, request.tried)
            if len(free) <= _spared(request.replicas):
                return False
            pod = free[0]
            self._members.acquire(pod)  # so that no other claim of this process uses it
            request.tried.add(uid_of(pod))
            try:
                if await self._claim(request, pod):
                    return True
            finally:
                self._members.release(pod)
            if self._clock.monotonic() >= request.until or self._is_refused(request.key, request.assignment):
                return False

    def _is_refused(self, key: Key, assignment: MemberAssignment) -> bool:
        return self._refused.get(key) == assignment

    async def _claim(self, request: _Request, pod: Object) -> bool:
        """Perform all steps until the member serves."""
        key, deployment = request.key, request.deployment
        mark = ClaimRecord(key.name, uid_of(deployment), self._by, self._clock.now())
        try:
            pod = await self._steps.reserve(key, pod, mark)
        except KnodelError as error:
            log.info("%s: cannot reserve warm Pod %s: %s", key, key_of(pod), error)
            return False
        try:
            await self._steps.assign(key, pod, request.assignment)
            await self._steps.label(key, pod, deployment["spec"]["template"])
        except KnodelError as error:
            if isinstance(error, LoadCallRefused):
                log.warning("%s: replicas start cold: %s", key, error)
                self._refused[key] = request.assignment
            await self._steps.delete(pod, f"its claim for {key} failed: {error}")
            return False
        return True


def _spared(replicas: RevisionReplicas) -> int:
    return SPARED if replicas.any_ready else 0
