"""Members of warm pools as the informers show them, together with what this process wrote and they do not show yet.

What a Pod is, is written on it (`marks`), and nothing else is remembered: a process that starts now reads the same. The
exceptions live as long as a write takes to come back: Pods just chosen by a claim, and Pods just written.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Final

from autoscaler.warmpool.claims.keys import PoolKey
from autoscaler.warmpool.claims.marks import LABEL_POOL, LABEL_POOL_CLASS
from autoscaler.warmpool.claims.pods import (
    belongs_to,
    is_active,
    is_claimed,
    is_orphan,
    keys_by_claim,
    restarts_of,
    same_template,
    token_hash_of,
)
from autoscaler.warmpool.spec import read_spec
from clusters.base.clock import Clock
from clusters.base.objects import (
    LABEL_REVISION,
    POD,
    REPLICA_SET,
    WARM_POOL,
    Key,
    Object,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    parse_timestamp,
    uid_of,
    version_of,
)
from clusters.net.endpoints import endpoint_of, is_ready
from clusters.runtime.informer import Informers

FORGET_AFTER: Final = 30.0
"""Seconds after which a write that no informer has shown is forgotten; an event takes milliseconds."""

_BY_CLASS = "warmpool.class"
_BY_CLAIM = "warmpool.claim"
_BY_REVISION = "warmpool.revision"
_ORPHANS = "warmpool.orphans"


class Members:
    """Free members, and the Pods of revisions. Reads memory only.

    `informers` show WarmPools, ReplicaSets and the Pods of revisions, `pool_informers` Pods with `LABEL_POOL`; both may
    be the same.
    """

    def __init__(self, informers: Informers, pool_informers: Informers, *, keys: PoolKey, clock: Clock) -> None:
        self._pods = informers[POD]
        self._members = pool_informers[POD]
        self._pools = informers[WARM_POOL]
        self._replica_sets = informers[REPLICA_SET]
        self._keys = keys
        self._clock = clock
        self._taken: set[str] = set()  # uids of Pods that a claim of this process is at work on
        self._written: dict[str, tuple[float, Object]] = {}  # uid → when, the Pod as a write of ours left it
        self._pods.add_index(_BY_REVISION, _revisions_of)
        self._pods.add_index(_ORPHANS, lambda pod: (_ORPHANS,) if is_orphan(pod) else ())
        self._members.add_index(_BY_REVISION, _revisions_of)
        self._members.add_index(_BY_CLAIM, _claims_of)
        self._members.add_index(_BY_CLASS, _classes_of)
        self._pods.subscribe(self._seen)
        self._members.subscribe(self._seen_in_pool)

    def free(self, namespace: str, pool_class: str, passing_over: Collection[str] = ()) -> list[Object]:
        """Members of the class that may be claimed now, oldest first; without those of these uids."""
        found = (self._latest(pod) for pod in self._members.indexed(_BY_CLASS, f"{namespace}/{pool_class}"))
        fit = [pod for pod in found if uid_of(pod) not in passing_over and self._is_free(pod)]
        ages = {pool: self._max_age(pool, namespace) for pool in {labels_of(pod)[LABEL_POOL] for pod in fit}}
        free = (pod for pod in fit if self._age(pod) <= ages[labels_of(pod)[LABEL_POOL]])
        return sorted(free, key=lambda pod: (str(pod["metadata"].get("creationTimestamp", "")), name_of(pod)))

    def take(self, pod: Object) -> None:
        """Keep it from every other claim of this process until `let_go`."""
        self._taken.add(uid_of(pod))

    def let_go(self, pod: Object) -> None:
        """The claim's work on it is over, or was given up; what was written stays on it."""
        self._taken.discard(uid_of(pod))

    def is_taken(self, pod: Object) -> bool:
        """Whether a claim of this process is at work on it."""
        return uid_of(pod) in self._taken

    def wrote(self, pod: Object) -> None:
        """A write of ours left the Pod like this: so it is, also before the informers show it."""
        self._written[uid_of(pod)] = (self._clock.monotonic(), pod)

    def of_revision(self, key: Key, deployment: Object) -> list[Object]:
        """The active Pods with the revision's labels: owned, about to be adopted, or claimed and not there yet."""
        newest: dict[str, Object] = {}
        shown = [*self._pods.indexed(_BY_REVISION, str(key)), *self._members.indexed(_BY_REVISION, str(key))]
        for pod in (*shown, *self._unseen()):
            known = newest.get(uid_of(pod))
            newest[uid_of(pod)] = pod if known is None else _newer(known, pod)
        return [
            pod
            for pod in newest.values()
            if str(key) in _revisions_of(pod) and is_active(pod) and belongs_to(pod, deployment)
        ]

    def reserved_for(self, key: Key) -> list[Object]:
        """Members whose claim names the revision, and which are not labelled as its own yet."""
        found = (self._latest(pod) for pod in self._members.indexed(_BY_CLAIM, str(key)))
        return [pod for pod in found if LABEL_REVISION not in labels_of(pod) and is_active(pod)]

    def claimed(self) -> list[Object]:
        """All Pods that were claimed and that no ReplicaSet has adopted, of every revision."""
        found = (self._latest(pod) for pod in self._members)
        halves = [pod for pod in found if is_claimed(pod) and LABEL_POOL in labels_of(pod)]
        return [pod for pod in (*halves, *self._pods.indexed(_ORPHANS, _ORPHANS)) if is_active(pod)]

    def replica_set(self, deployment: Object) -> Object | None:
        """The Deployment's ReplicaSet of its present template; None before it is made."""
        found = (one for one in self.replica_sets(uid_of(deployment)) if same_template(one, deployment))
        return next(found, None)

    def replica_sets(self, deployment: str) -> list[Object]:
        """Those of the Deployment with that uid, of whichever template."""
        return [one for one in self._replica_sets.indexed("owner", deployment) if not is_deleting(one)]

    def _is_free(self, pod: Object) -> bool:
        labels = labels_of(pod)
        return (
            LABEL_POOL in labels
            and LABEL_REVISION not in labels
            and not is_claimed(pod)
            and not self.is_taken(pod)
            and is_ready(pod)
            and is_active(pod)
            and restarts_of(pod) == 0
            and endpoint_of(pod) is not None
            and token_hash_of(pod) == self._keys.sha256_for(key_of(pod))
        )

    def _max_age(self, pool: str, namespace: str) -> float:
        """Seconds that members of the WarmPool may be old; of a pool that is gone nothing is claimed."""
        found = self._pools.get(pool, namespace)
        return -math.inf if found is None else read_spec(found).max_age

    def _age(self, pod: Object) -> float:
        created = parse_timestamp(str(pod["metadata"]["creationTimestamp"]))
        return (self._clock.now() - created).total_seconds()

    def _latest(self, pod: Object) -> Object:
        written = self._written.get(uid_of(pod))
        return pod if written is None else _newer(pod, written[1])

    def _unseen(self) -> list[Object]:
        """Pods as written that no informer has shown so; those that never will be are forgotten."""
        deadline = self._clock.monotonic() - FORGET_AFTER
        self._written = {uid: entry for uid, entry in self._written.items() if entry[0] >= deadline}
        return [pod for _, pod in self._written.values()]

    def _seen(self, before: Object | None, after: Object | None) -> None:
        """What the informer of revisions shows as it was written, or as gone, needs no memory."""
        pod = after if after is not None else before
        written = self._written.get(uid_of(pod)) if pod is not None else None
        if pod is not None and written is not None and (after is None or _version(after) >= _version(written[1])):
            del self._written[uid_of(pod)]

    def _seen_in_pool(self, before: Object | None, after: Object | None) -> None:
        """A Pod that left the pool, and not by an adoption of ours, is gone."""
        written = self._written.get(uid_of(before)) if before is not None and after is None else None
        if before is not None and written is not None and LABEL_POOL in labels_of(written[1]):
            del self._written[uid_of(before)]


def _newer(one: Object, other: Object) -> Object:
    return other if _version(other) > _version(one) else one


def _version(pod: Object) -> int:
    """Versions compare as numbers, as Kubernetes 1.35 promises."""
    return int(version_of(pod) or 0)


def _revisions_of(pod: Object) -> Iterable[str]:
    revision = labels_of(pod).get(LABEL_REVISION)
    return (str(Key(namespace_of(pod), revision)),) if revision else ()


def _claims_of(pod: Object) -> Iterable[str]:
    return [str(key) for key in keys_by_claim(pod)]


def _classes_of(pod: Object) -> Iterable[str]:
    found = labels_of(pod).get(LABEL_POOL_CLASS)
    return (f"{namespace_of(pod)}/{found}",) if found else ()
