"""Claims of warm-pool members for revisions that miss replicas: what the PodAutoscaler reconciler calls.

    begin     reserve → assign → label        the member serves
    (the reconciler scales the Deployment)
    finish    adopt                           the member is a replica like any other

All that is known of a claim is written on its Pod, so `finish` and `reap` are also what cleans up behind a process that
died between two steps (`marks` lists the states).
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
from autoscaler.warmpool.claims.assignment import Assignment, assignment_of, loads_anything
from autoscaler.warmpool.claims.caller import LoadCaller, LoadRefused
from autoscaler.warmpool.claims.claim import ClaimStep, Steps
from autoscaler.warmpool.claims.classes import format_of, pool_class
from autoscaler.warmpool.claims.keys import PoolKey
from autoscaler.warmpool.claims.marks import ANNOTATION_LOAD
from autoscaler.warmpool.claims.pods import Mark, is_claimed
from autoscaler.warmpool.members import Members
from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import KnodelError
from clusters.base.objects import Key, Object, is_deleting, key_of, namespace_of, uid_of
from clusters.net.endpoints import is_ready
from clusters.runtime.informer import Informers

log = logging.getLogger(__name__)

SPARED: Final = 1
"""Free members that a revision with ready replicas leaves: for one that has none, whose caller waits."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """What a revision has: `cold` ready ones that were never claimed, `claimed` Pods, whether any of both is ready."""

    cold: int
    claimed: int
    any_ready: bool


def claims_wanted(desired: int, replicas: Replicas, free: int) -> int:
    """How many members to claim for a revision whose Deployment is to have `desired` replicas, of `free` ones. Pure.

    A Pod that came by a claim counts as provided even while it crashes, so a broken model takes one member, not all.
    """
    missing = desired - replicas.cold - replicas.claimed
    return max(0, min(missing, free - _spared(replicas)))


@dataclass(frozen=True, slots=True)
class _Request:
    """One call of `begin`; `tried` are uids of members that its claims took up, `until` when none is begun any more."""

    key: Key
    deployment: Object
    assignment: Assignment
    pool_class: str
    replicas: Replicas
    until: float
    tried: set[str] = field(default_factory=set)


class Claims:
    """Claims for all revisions of this process. One revision's calls come one after the other.

    `informers` show WarmPools, Deployments, ReplicaSets and Pods of revisions, `pool_informers` Pods with `LABEL_POOL`:
    make this before they run. `formats` returns the model format that a server of the revision found, empty when none
    is known. `log` receives each step.
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
        self._steps = Steps(cluster, self._members, caller=caller, keys=keys, clock=clock, tell=log)
        self._adoption = Adoption(cluster, informers, self._members, self._steps, clock, settings)
        self._by = f"{socket.gethostname()}-{secrets.token_hex(4)}"
        self._complained: set[Key] = set()
        self._refused: dict[Key, Assignment] = {}  # what a member said that no server can serve

    def available(self, key: Key, deployment: Object) -> int:
        """Return the number of free ready members for the revision, from memory; 0 when none of its can be claimed."""
        template = deployment["spec"]["template"]
        if ANNOTATION_LOAD not in ((template.get("metadata") or {}).get("annotations") or {}):
            return 0
        found = self._class(key, template)
        return len(self._members.free(namespace_of(deployment), found)) if found else 0

    async def begin(self, key: Key, deployment: Object, wanted: int, digest: str = "") -> int:
        """Reserve, assign and label, at once, what the Deployment misses until it has `wanted` replicas.

        `claims_wanted` says how many; returns how many members serve that did not before. One that fails is given up,
        deleted if it was reserved, and the next one is tried, for as long as `WarmStart.assign_timeout` after the call
        came: then the caller starts replicas cold, and calls again. Raises nothing for a member's or a cluster's sake.
        `digest` is what all replicas load, of a revision that promises none. Without one, such a revision claims none.
        """
        if not digest and loads_anything(deployment["spec"]["template"]):
            return 0
        request = self._request(key, deployment, digest)
        if request is None:
            return 0
        free = len(self._members.free(key.namespace, request.pool_class))
        number = claims_wanted(wanted, request.replicas, free)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._provide(request)) for _ in range(number)]
        return sum(task.result() for task in tasks)

    async def finish(self, key: Key, deployment: Object) -> float | None:
        """Adopt the labelled members for which the ReplicaSet has room; delete what waited or lay idle too long.

        Returns the seconds until the next look, or None when there is nothing to wait for.
        """
        return await self._adoption.finish(key, deployment)

    async def reap(self) -> float | None:
        """Delete claimed members that no `finish` takes care of: of revisions that are gone, or that nobody works on.

        Returns the seconds until the next one is due, or None when none is under way.
        """
        return await self._adoption.reap()

    def forget(self, key: Key) -> None:
        """The revision is gone; its Pods are left to `reap`."""
        self._complained.discard(key)
        self._refused.pop(key, None)

    def _replicas(self, key: Key, deployment: Object) -> Replicas:
        pods = self._members.of_revision(key, deployment)
        return Replicas(
            cold=sum(1 for pod in pods if is_ready(pod) and not is_claimed(pod)),
            claimed=sum(1 for pod in pods if is_claimed(pod)),
            any_ready=any(is_ready(pod) for pod in pods),
        )

    def _request(self, key: Key, deployment: Object, digest: str) -> _Request | None:
        template = deployment["spec"]["template"]
        assignment = assignment_of(template, key.name, digest)
        if assignment is None or is_deleting(deployment):
            self._complain(key, template, assignment)
            return None
        found = self._class(key, template)
        if not found or self._is_refused(key, assignment):
            return None
        return _Request(
            key,
            deployment,
            assignment,
            found,
            self._replicas(key, deployment),
            self._clock.monotonic() + self._settings.assign_timeout,
        )

    def _class(self, key: Key, template: Object) -> str:
        """Return the class of members for the revision, empty while its model's format is unknown.

        A member with another engine would have to import the right one first. That takes longer than a cold start out
        of a zygote, so no member is better than a wrong one.
        """
        model_format = format_of(template["spec"]) or self._formats(key)
        return pool_class(template, model_format) if model_format else ""

    def _complain(self, key: Key, template: Object, assignment: Assignment | None) -> None:
        text = ((template.get("metadata") or {}).get("annotations") or {}).get(ANNOTATION_LOAD)
        if assignment is None and text is not None and key not in self._complained:
            self._complained.add(key)
            log.warning("%s: its replicas start cold: its annotation %s cannot be read", key, ANNOTATION_LOAD)

    async def _provide(self, request: _Request) -> bool:
        """One replica: try members until one serves, there is none left, or the time is over."""
        while (pod := self._choose(request)) is not None:
            try:
                if await self._claim(request, pod):
                    return True
            finally:
                self._members.let_go(pod)
            if self._clock.monotonic() >= request.until or self._is_refused(request.key, request.assignment):
                return False
        return False

    def _is_refused(self, key: Key, assignment: Assignment) -> bool:
        return self._refused.get(key) == assignment

    def _choose(self, request: _Request) -> Object | None:
        """The next member, taken: no other claim of this process chooses it."""
        free = self._members.free(request.key.namespace, request.pool_class, request.tried)
        if len(free) <= _spared(request.replicas):
            return None
        self._members.take(free[0])
        request.tried.add(uid_of(free[0]))
        return free[0]

    async def _claim(self, request: _Request, pod: Object) -> bool:
        """All steps that lead to a member which serves."""
        key, deployment = request.key, request.deployment
        mark = Mark(key.name, uid_of(deployment), self._by, self._clock.now())
        try:
            pod = await self._steps.reserve(key, pod, mark)
        except KnodelError as error:
            log.info("%s: warm Pod %s is not to be had: %s", key, key_of(pod), error)
            return False
        try:
            await self._steps.assign(key, pod, request.assignment)
            await self._steps.label(key, pod, deployment["spec"]["template"])
        except KnodelError as error:
            if isinstance(error, LoadRefused):
                log.warning("%s: its replicas start cold: %s", key, error)
                self._refused[key] = request.assignment
            await self._steps.delete(pod, f"its claim for {key} failed: {error}")
            return False
        return True


def _spared(replicas: Replicas) -> int:
    return SPARED if replicas.any_ready else 0


__all__ = ["ClaimStep", "Claims", "Replicas", "claims_wanted"]
