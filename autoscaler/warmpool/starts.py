"""Warm starts: claims of members, upkeep of pools, and the reaper of abandoned claims, combined for the autoscaler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from autoscaler.config import WarmStart
from autoscaler.warmpool.claims.caller import LoadCaller
from autoscaler.warmpool.claims.claim import ClaimStep
from autoscaler.warmpool.claims.claims import MemberClaims
from autoscaler.warmpool.claims.classes import format_of, pool_class
from autoscaler.warmpool.claims.keys import PoolKey
from autoscaler.warmpool.claims.marks import ANNOTATION_LOAD
from autoscaler.warmpool.claims.pods import is_unadopted
from autoscaler.warmpool.manager import PoolGpus, PoolManager
from autoscaler.warmpool.sizing.arrivals import ClassKey
from autoscaler.warmpool.sizing.keep_alive_planner import KeepAlive
from autoscaler.warmpool.sizing.keep_warm import KeepWarm
from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.objects import POD, Key, Object, namespace_of, version_of
from clusters.runtime.controller import Controller
from clusters.runtime.informer import Informers
from clusters.runtime.recorder import Recorder

ALL: Final = Key("", "claims")
"""The single key of the reaper, which processes all claimed members at once."""


class WarmStarts:
    """Replicas from warm pools; run `controllers` after the informers have synced."""

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
        formats: Callable[[Key], str],
        log: Callable[[ClaimStep], None],
        keep: KeepWarm,
        gpus: PoolGpus | None = None,
    ) -> None:
        self._keep = keep
        self._formats = formats
        self._classes: dict[Key, tuple[str, str, str]] = {}  # version of the Deployment, format found, class
        self._claims = MemberClaims(
            cluster, informers, pool_informers, caller=caller, keys=keys, clock=clock, settings=settings,
            formats=formats, log=log,
        )  # fmt: skip
        self._pools = PoolManager(
            cluster, informers, pool_informers, keys=keys, clock=clock, settings=settings, recorder=recorder,
            keep=keep, gpus=gpus,
        )  # fmt: skip
        self._resync = settings.resync
        reaper = Controller("reaper of claims", self._reap, workers=1)
        for pods in (informers[POD], pool_informers[POD]):  # Pods that left their pool are only in the first
            reaper.watches_mapped(pods, lambda pod: [ALL] if is_unadopted(pod) else [], lambda *_: settings.resync)
        self.controllers = (self._pools.controller, reaper)

    def reconsider_pool(self, key: Key) -> None:
        """Enqueue a pool, because its limit has changed."""
        self._pools.controller.queue.add(key)

    async def begin(self, key: Key, deployment: Object, wanted: int, digest: str = "") -> int:
        """Claim members for a Deployment that needs `wanted` replicas; return how many of them serve now.

        `digest` is the recorded digest that they must load, for a revision whose spec has none.
        """
        return await self._claims.begin(key, deployment, wanted, digest)

    def record_starts(self, key: Key, deployment: Object, started: int, claimed: int) -> None:
        """Record `started` requested replicas, of which `claimed` serve already, for the size of pools."""
        found = self._class(key, deployment)
        if not found:
            return
        for number in range(started):
            self._pools.record_start(namespace_of(deployment), found, number < claimed)

    def follow(self, key: Key, deployment: Object, set_to: float | None) -> KeepAlive | None:
        """Record that the revision may go to zero, after `set_to` seconds if configured; return the pool plan's
        keep-alive.
        """
        found = self._class(key, deployment)
        if not found:
            self._keep.unfollow(key)
            return None
        return self._keep.follow(key, ClassKey(namespace_of(deployment), found), set_to)

    def unfollow(self, key: Key) -> None:
        """Record that the revision does not go to zero at present."""
        self._keep.unfollow(key)

    async def finish(self, key: Key, deployment: Object) -> float | None:
        """Adopt serving members, or undo their claims; return the seconds until the next pass, or None."""
        return await self._claims.finish(key, deployment)

    def forget(self, key: Key) -> None:
        """Delete a revision that is gone."""
        self._claims.forget(key)
        self._keep.forget(key)
        self._classes.pop(key, None)

    def _class(self, key: Key, deployment: Object) -> str:
        """Return the class of members that can serve the revision; empty without any, or while its format is
        unknown.
        """
        template = deployment["spec"]["template"]
        if ANNOTATION_LOAD not in ((template.get("metadata") or {}).get("annotations") or {}):
            return ""
        version, found = version_of(deployment), self._formats(key)
        known = self._classes.get(key)
        if known is not None and known[:2] == (version, found):
            return known[2]
        model_format = format_of(template["spec"]) or found
        made = pool_class(template, model_format) if model_format else ""
        self._classes[key] = version, found, made
        return made

    async def _reap(self, _: Key) -> float | None:
        left = await self._claims.reap()
        return None if left is None else min(left, self._resync)
