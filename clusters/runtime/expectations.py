"""What this process did and its informer has not shown yet: so that no pass acts twice on a stale view.

As client-go's controllers' expectations, but by name: a Pod is written down before it is asked for, so that its event
may come before the answer. What never shows (created and gone between two lists) is given up after a while.
"""

from __future__ import annotations

from clusters.base.clock import Clock
from clusters.base.objects import Key, Object, controller_of, is_deleting, key_of, uid_of
from clusters.runtime.informer import Informer

FORGET_AFTER = (
    30.0  # s; an event takes milliseconds. Kubernetes waits 5 min, too long for a model that misses a replica
)


class Expectations:
    """Pods being created (by key) and being deleted (by uid), for all owners that one controller has."""

    def __init__(self, pods: Informer, clock: Clock) -> None:
        self._pods = pods
        self._clock = clock
        self._creating: dict[str, dict[Key, float]] = {}
        self._deleting: dict[str, float] = {}
        pods.subscribe(self._seen)

    def expect_creation(self, owner: str, pod: Key) -> None:
        """A Pod of the controlling owner with uid `owner` is about to be asked for."""
        self._creating.setdefault(owner, {})[pod] = self._clock.monotonic()

    def creation_failed(self, owner: str, pod: Key) -> None:
        """It was refused."""
        self._settle(owner, pod)

    def expect_deletion(self, pod: Object) -> None:
        """The Pod's deletion is about to be asked for."""
        self._deleting[uid_of(pod)] = self._clock.monotonic()

    def deletion_failed(self, pod: Object) -> None:
        """It was refused."""
        self._deleting.pop(uid_of(pod), None)

    def creating(self, owner: str) -> int:
        """How many Pods of `owner` were asked for and have not shown."""
        deadline = self._clock.monotonic() - FORGET_AFTER
        for pod in [pod for pod, since in self._creating.get(owner, {}).items() if since < deadline]:
            self._settle(owner, pod)
        return len(self._creating.get(owner, {}))

    def is_deleting(self, pod: Object) -> bool:
        """Whether the Pod's deletion was asked for, seen or not."""
        since = self._deleting.get(uid_of(pod))
        return is_deleting(pod) or (since is not None and since >= self._clock.monotonic() - FORGET_AFTER)

    def _seen(self, before: Object | None, after: Object | None) -> None:
        pod = after if after is not None else before
        if pod is None:
            return
        if after is None or is_deleting(after):
            self._deleting.pop(uid_of(pod), None)
        owner = controller_of(pod)
        if owner is not None:
            self._settle(owner["uid"], key_of(pod))

    def _settle(self, owner: str, pod: Key) -> None:
        expected = self._creating.get(owner)
        if expected is not None and expected.pop(pod, None) is not None and not expected:
            del self._creating[owner]
