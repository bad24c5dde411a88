"""Count Pods that a ReplicaSet is about to adopt: those with all labels of its template except the hash.

A warm start labels a running Pod first, so that it serves, and then scales the Deployment. Some milliseconds after the
ReplicaSet has been scaled, it adds the hash label, by which the ReplicaSet adopts the Pod. In between, a ReplicaSet of
Kubernetes creates another Pod, which it deletes again before a node has done much for it. The kubelet of one machine
would fork the process and load the model within that time. So here the ReplicaSet waits up to `ADOPTION_TIMEOUT` for as
many Pods as are to be adopted. A cold start has no such Pods and does not wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from clusters.base.clock import Clock
from clusters.base.objects import LABEL_TEMPLATE_HASH, Object, labels_of, namespace_of, uid_of
from clusters.embedded.workloads.ranking import is_active
from clusters.runtime.informer import Informer

ADOPTION_TIMEOUT: Final = 1.0  # s; an adoption takes about 10 ms, and meanwhile the Pods already serve
INDEX: Final = "without-hash"


def without_hash(pod: Object) -> Iterable[str]:
    """Return the namespace of a Pod without a hash label, as index value."""
    return () if LABEL_TEMPLATE_HASH in labels_of(pod) else (namespace_of(pod),)


class PendingAdoptions:
    """Remember when the wait for each Pod began."""

    def __init__(self, pods: Informer, clock: Clock) -> None:
        self._pods = pods
        self._clock = clock
        self._since: dict[str, float] = {}  # Pod's uid → when it was first counted
        pods.add_index(INDEX, without_hash)
        pods.subscribe(self._on_change)

    def count(self, replica_set: Object) -> int:
        """Return the number of Pods to wait for. The timeout of a Pod begins with the first call that counts it."""
        template = replica_set["spec"]["template"].get("metadata") or {}
        wanted = {**(template.get("labels") or {})}
        wanted.pop(LABEL_TEMPLATE_HASH, None)
        if not wanted:
            return 0
        now, pending = self._clock.monotonic(), 0
        for pod in self._pods.indexed(INDEX, namespace_of(replica_set)):
            if is_active(pod) and wanted.items() <= labels_of(pod).items():
                pending += now < self._since.setdefault(uid_of(pod), now) + ADOPTION_TIMEOUT
        return pending

    def _on_change(self, before: Object | None, after: Object | None) -> None:
        if before is not None and (after is None or LABEL_TEMPLATE_HASH in labels_of(after)):
            self._since.pop(uid_of(before), None)
