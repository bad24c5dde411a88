"""The warm pool as the autoscaler sees it: claims for replicas, the keeper of members, the reaper, joined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from autoscaler.config import WarmStart
from autoscaler.warmpool.arrivals import ClassKey
from autoscaler.warmpool.caller import LoadCaller
from autoscaler.warmpool.claim import ClaimStep
from autoscaler.warmpool.claims import Claims
from autoscaler.warmpool.classes import pool_class
from autoscaler.warmpool.keep_warm import KeepWarm
from autoscaler.warmpool.keeper import Hold
from autoscaler.warmpool.keys import PoolKey
from autoscaler.warmpool.manager import PoolManager
from autoscaler.warmpool.marks import ANNOTATION_LOAD
from autoscaler.warmpool.pods import is_half
from clusters.api import Cluster
from clusters.clock import Clock
from clusters.controller import Controller
from clusters.informer import Informers
from clusters.objects import POD, Key, Object, namespace_of, version_of
from clusters.recorder import Recorder

ALL: Final = Key("", "claims")
"""The reaper's one key: it looks at all claimed members at once."""


class WarmStarts:
    """Replicas out of warm pools; run `controllers` once the informers synced."""

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
        recorder: Recorder,
        log: Callable[[ClaimStep], None],
        keep: KeepWarm,
    ) -> None:
        self._keep = keep
        self._classes: dict[Key, tuple[str, str]] = {}  # version of the Deployment, class of its template
        self._claims = Claims(
            cluster, informers, pool_informers, caller=caller, keys=keys, clock=clock, settings=settings, log=log
        )
        self._pools = PoolManager(
            cluster, informers, pool_informers, keys=keys, clock=clock, settings=settings, recorder=recorder, keep=keep
        )
        self._look = settings.look
        reaper = Controller("reaper of claims", self._reap, workers=1)
        for pods in (informers[POD], pool_informers[POD]):  # what left its pool is among the former alone
            reaper.watches_mapped(pods, lambda pod: [ALL] if is_half(pod) else [], lambda *_: settings.look)
        self.controllers = (self._pools.controller, reaper)

    async def begin(self, key: Key, deployment: Object, wanted: int) -> int:
        """Have members serve for this Deployment, which is to have `wanted` replicas; how many do so now."""
        return await self._claims.begin(key, deployment, wanted)

    def note(self, deployment: Object, started: int, claimed: int) -> None:
        """So many replicas were asked for just now, of which so many serve already: what the size of pools follows."""
        if not _is_loadable(deployment):
            return
        found = pool_class(deployment["spec"]["template"])
        for number in range(started):
            self._pools.note_start(namespace_of(deployment), found, number < claimed)

    def follow(self, key: Key, deployment: Object, set_to: float | None) -> Hold | None:
        """The revision may go to zero, after `set_to` seconds where somebody said so; the hold of the pool's plan."""
        if not _is_loadable(deployment):
            return None
        version, found = self._classes.get(key, ("", ""))
        if version != version_of(deployment):
            found = pool_class(deployment["spec"]["template"])
            self._classes[key] = version_of(deployment), found
        return self._keep.follow(key, ClassKey(namespace_of(deployment), found), set_to)

    def unfollow(self, key: Key) -> None:
        """The revision does not go to zero for the present."""
        self._keep.unfollow(key)

    async def finish(self, key: Key, deployment: Object) -> float | None:
        """Have members that serve adopted, or undone; seconds until the next look, or None."""
        return await self._claims.finish(key, deployment)

    def forget(self, key: Key) -> None:
        """The revision is gone."""
        self._claims.forget(key)
        self._keep.forget(key)
        self._classes.pop(key, None)

    async def _reap(self, _: Key) -> float | None:
        left = await self._claims.reap()
        return None if left is None else min(left, self._look)


def _is_loadable(deployment: Object) -> bool:
    """Whether a member could serve it: it says what is to be loaded."""
    annotations = (deployment["spec"]["template"].get("metadata") or {}).get("annotations") or {}
    return ANNOTATION_LOAD in annotations
