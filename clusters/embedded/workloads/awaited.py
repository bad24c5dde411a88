"""Pods that are about to be a ReplicaSet's: those that carry all labels of its template but the hash.

A warm start gives a running Pod these labels first, so that it serves, then has the Deployment scaled, and adds the
hash, by which the ReplicaSet adopts it, a few milliseconds after the ReplicaSet has room for it. Kubernetes' ReplicaSet
makes a Pod of its own in between and deletes it again before a node has done much for it. The kubelet of one machine
forks the process and loads the model within that time. So here the ReplicaSet waits a moment for as many Pods as are on
their way, and the Pod is never made. Where there are none, as with any cold start, nothing waits. A Pod that is not
adopted in time counts no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from clusters.base.clock import Clock
from clusters.base.objects import LABEL_TEMPLATE_HASH, Object, labels_of, namespace_of, uid_of
from clusters.embedded.workloads.ranking import is_active
from clusters.runtime.informer import Informer

PATIENCE: Final = 1.0  # s; an adoption takes some 10 ms, and the Pods waited for serve meanwhile
INDEX: Final = "without-hash"


def without_hash(pod: Object) -> Iterable[str]:
    """Index values: the namespace of a Pod that is no ReplicaSet's."""
    return () if LABEL_TEMPLATE_HASH in labels_of(pod) else (namespace_of(pod),)


class Awaited:
    """Remembers since when each is awaited."""

    def __init__(self, pods: Informer, clock: Clock) -> None:
        self._pods = pods
        self._clock = clock
        self._since: dict[str, float] = {}  # Pod's uid → when it was first seen so
        pods.add_index(INDEX, without_hash)
        pods.subscribe(self._forget)

    def count(self, replica_set: Object) -> int:
        """How many Pods are on their way to the ReplicaSet, which has room for them: their time begins now."""
        template = replica_set["spec"]["template"].get("metadata") or {}
        wanted = {**(template.get("labels") or {})}
        wanted.pop(LABEL_TEMPLATE_HASH, None)
        if not wanted:
            return 0
        now, found = self._clock.monotonic(), 0
        for pod in self._pods.indexed(INDEX, namespace_of(replica_set)):
            if is_active(pod) and wanted.items() <= labels_of(pod).items():
                found += now < self._since.setdefault(uid_of(pod), now) + PATIENCE
        return found

    def _forget(self, before: Object | None, after: Object | None) -> None:
        if before is not None and (after is None or LABEL_TEMPLATE_HASH in labels_of(after)):
            self._since.pop(uid_of(before), None)
