"""The members of warm pools, from the informers and from this process's own writes that the informers do not show yet.

The state of a Pod is written on it (`marks`), so a new process reads the same state. Only two things are kept in
memory: the Pods of running claims, and Pods just written, until they appear in the informers (`OwnWrites`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

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
    version_number,
    version_of,
)
from clusters.net.endpoints import endpoint_of, is_ready
from clusters.runtime.informer import Informers

_BY_CLASS = "warmpool.class"
_BY_CLAIM = "warmpool.claim"
_BY_REVISION = "warmpool.revision"
_ORPHANS = "warmpool.orphans"


class Members:
    """Free members, and the Pods of revisions. Reads memory only.

    `informers` cache WarmPools, ReplicaSets and the Pods of revisions, `pool_informers` Pods with `LABEL_POOL`; both
    may be the same.
    """

    def __init__(self, informers: Informers, pool_informers: Informers, *, keys: PoolKey, clock: Clock) -> None:
        self._pods = informers[POD]
        self._members = pool_informers[POD]
        self._pools = informers[WARM_POOL]
        self._replica_sets = informers[REPLICA_SET]
        self._keys = keys
        self._clock = clock
        self._acquired: set[str] = set()  # uids of Pods in a running claim of this process
        self._pods.add_index(_BY_REVISION, _revisions_of)
        self._pods.add_index(_ORPHANS, lambda pod: (_ORPHANS,) if is_orphan(pod) else ())
        self._members.add_index(_BY_REVISION, _revisions_of)
        self._members.add_index(_BY_CLAIM, lambda pod: map(str, keys_by_claim(pod)))
        self._members.add_index(_BY_CLASS, _classes_of)

    def free(self, namespace: str, pool_class: str, passing_over: Collection[str] = ()) -> list[Object]:
        """Return the members of the class that may be claimed now, oldest first, without those of the uids
        `passing_over`.
        """
        latest = self._members.own_writes.latest
        found = (latest(pod) for pod in self._members.indexed(_BY_CLASS, f"{namespace}/{pool_class}"))
        fit = [pod for pod in found if uid_of(pod) not in passing_over and self._is_free(pod)]
        pools = {name: self._pools.get(name, namespace) for name in {labels_of(pod)[LABEL_POOL] for pod in fit}}
        max_ages = {name: -math.inf if pool is None else read_spec(pool).max_age for name, pool in pools.items()}
        now, free = self._clock.now(), []
        for pod in fit:
            created = parse_timestamp(str(pod["metadata"]["creationTimestamp"]))
            if (now - created).total_seconds() <= max_ages[labels_of(pod)[LABEL_POOL]]:
                free.append(pod)
        return sorted(free, key=lambda pod: (str(pod["metadata"].get("creationTimestamp", "")), name_of(pod)))

    def acquire(self, pod: Object) -> None:
        """Reserve the Pod for one claim of this process until `release`."""
        self._acquired.add(uid_of(pod))

    def release(self, pod: Object) -> None:
        """End the reservation of the Pod; writes on it remain."""
        self._acquired.discard(uid_of(pod))

    def is_acquired(self, pod: Object) -> bool:
        """Return whether a claim of this process is using the Pod."""
        return uid_of(pod) in self._acquired

    def record_write(self, pod: Object) -> None:
        """Record the Pod as returned by a write, until each informer shows it: one may lag behind the other."""
        self._pods.own_writes.record(pod)
        self._members.own_writes.record(pod)

    def of_revision(self, key: Key, deployment: Object) -> list[Object]:
        """Return the active Pods with the revision's labels: owned ones, and claimed ones before their adoption."""
        newest: dict[str, Object] = {}
        for informer in (self._pods, self._members):
            for pod in (*informer.indexed(_BY_REVISION, str(key)), *informer.own_writes.unseen()):
                known = newest.get(uid_of(pod))
                if known is None or version_number(version_of(known)) < version_number(version_of(pod)):
                    newest[uid_of(pod)] = pod
        return [
            pod
            for pod in newest.values()
            if str(key) in _revisions_of(pod) and is_active(pod) and belongs_to(pod, deployment)
        ]

    def reserved_for(self, key: Key) -> list[Object]:
        """Return the members whose claim names the revision and that do not have its labels yet."""
        found = map(self._members.own_writes.latest, self._members.indexed(_BY_CLAIM, str(key)))
        return [pod for pod in found if LABEL_REVISION not in labels_of(pod) and is_active(pod)]

    def claimed(self) -> list[Object]:
        """Return the claimed Pods of all revisions that no ReplicaSet has adopted."""
        found = map(self._members.own_writes.latest, self._members)
        halves = [pod for pod in found if is_claimed(pod) and LABEL_POOL in labels_of(pod)]
        return [pod for pod in (*halves, *self._pods.indexed(_ORPHANS, _ORPHANS)) if is_active(pod)]

    def replica_set(self, deployment: Object) -> Object | None:
        """Return the Deployment's ReplicaSet of its present template, or None before it exists."""
        found = (one for one in self.replica_sets(uid_of(deployment)) if same_template(one, deployment))
        return next(found, None)

    def replica_sets(self, deployment: str) -> list[Object]:
        """Return all ReplicaSets of the Deployment with that uid."""
        return [one for one in self._replica_sets.indexed("owner", deployment) if not is_deleting(one)]

    def _is_free(self, pod: Object) -> bool:
        labels = labels_of(pod)
        return (
            LABEL_POOL in labels
            and LABEL_REVISION not in labels
            and not is_claimed(pod)
            and not self.is_acquired(pod)
            and is_ready(pod)
            and is_active(pod)
            and restarts_of(pod) == 0
            and endpoint_of(pod) is not None
            and token_hash_of(pod) == self._keys.sha256_for(key_of(pod))
        )


def _revisions_of(pod: Object) -> Iterable[str]:
    revision = labels_of(pod).get(LABEL_REVISION)
    return (str(Key(namespace_of(pod), revision)),) if revision else ()


def _classes_of(pod: Object) -> Iterable[str]:
    found = labels_of(pod).get(LABEL_POOL_CLASS)
    return (f"{namespace_of(pod)}/{found}",) if found else ()
