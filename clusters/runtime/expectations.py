"""Creations and deletions of Pods that an informer has not observed yet, so that no pass acts twice on a stale view.

It works like the expectations of Kubernetes' controllers, but by name: a Pod is recorded before its creation, so its
event may precede the response. A Pod that is never observed (deleted between two lists) is forgotten after a while.
"""

from __future__ import annotations

from clusters.base.clock import Clock
from clusters.base.objects import Key, Object, controller_of, is_deleting, key_of, uid_of
from clusters.runtime.informer import Informer

FORGET_AFTER = 30.0
"""s; an event takes milliseconds. Kubernetes waits 5 minutes, too long for a model that lacks a replica."""


class Expectations:
    """Pods being created (by key) and being deleted (by uid), for all owners of one controller."""

    def __init__(self, pods: Informer, clock: Clock) -> None:
        self._pods = pods
        self._clock = clock
        self._creating: dict[str, dict[Key, float]] = {}
        self._deleting: dict[str, float] = {}
        pods.subscribe(self._observe)

    def expect_creation(self, owner: str, pod: Key) -> None:
        """Record that a Pod of the controlling owner with uid `owner` is about to be created."""
        self._creating.setdefault(owner, {})[pod] = self._clock.monotonic()

    def creation_failed(self, owner: str, pod: Key) -> None:
        """Delete the record of a creation that failed."""
        self._fulfil(owner, pod)

    def expect_deletion(self, pod: Object) -> None:
        """Record that a Pod is about to be deleted."""
        self._deleting[uid_of(pod)] = self._clock.monotonic()

    def deletion_failed(self, pod: Object) -> None:
        """Delete the record of a deletion that failed."""
        self._deleting.pop(uid_of(pod), None)

    def creating(self, owner: str) -> int:
        """Return the number of Pods of `owner` that were created and not observed yet."""
        deadline = self._clock.monotonic() - FORGET_AFTER
        for pod in [pod for pod, since in self._creating.get(owner, {}).items() if since < deadline]:
            self._fulfil(owner, pod)
        return len(self._creating.get(owner, {}))

    def is_deleting(self, pod: Object) -> bool:
        """Return whether the Pod is being deleted, observed or not."""
        since = self._deleting.get(uid_of(pod))
        return is_deleting(pod) or (since is not None and since >= self._clock.monotonic() - FORGET_AFTER)

    def _observe(self, before: Object | None, after: Object | None) -> None:
        pod = after if after is not None else before
        if pod is None:
            return
        if after is None or is_deleting(after):
            self._deleting.pop(uid_of(pod), None)
        owner = controller_of(pod)
        if owner is not None:
            self._fulfil(owner["uid"], key_of(pod))

    def _fulfil(self, owner: str, pod: Key) -> None:
        expected = self._creating.get(owner)
        if expected is not None and expected.pop(pod, None) is not None and not expected:
            del self._creating[owner]
