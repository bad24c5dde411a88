"""Whether the replicas of a revision serve the adapters that its language model wants. Pure but for `AdapterReports`.

The list is in a ConfigMap, which Kubernetes' kubelet brings to a running Pod within a minute or so. It does that at
once when an annotation of the Pod changes
(https://kubernetes.io/docs/tasks/configure-pod-container/configure-pod-configmap/#mounted-configmaps-are-updated-automatically).

no replica has reported                 None: the condition stays
a replica reports a fault of its list   False    AdapterFailed
a replica has another list              Unknown  Loading
else                                    True
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping

from autoscaler.metrics.stat import AdapterReport, Sample
from autoscaler.reconciler.status import ReplicaState
from autoscaler.types import ADAPTERS_ANNOTATION
from clusters.base.api import Cluster
from clusters.base.errors import ClusterError
from clusters.base.objects import POD, Key, Object, annotations_of, key_of, name_of, namespace_of

log = logging.getLogger(__name__)

WANTED_ANNOTATION = "autoscaling.knodel.dev/adapters-wanted"
"""On a Pod: the id of the list of adapters that it should have."""
FAILED = "AdapterFailed"
LOADING = "Loading"


class AdapterReports:
    """The last reports of replicas."""

    def __init__(self, cluster: Cluster, manager: str) -> None:
        self._cluster = cluster
        self._manager = manager
        self._reports: dict[Key, dict[str, AdapterReport]] = {}

    def observe(self, key: Key, samples: Mapping[str, Sample]) -> bool:
        """Record the readings of a revision's ready replicas; return whether a reconcile pass is needed."""
        found = {pod: sample.adapters for pod, sample in samples.items() if sample.adapters is not None}
        changed = found != self._reports.get(key, {})
        if found:
            self._reports[key] = found
        else:
            self._reports.pop(key, None)
        return changed

    def state(self, key: Key, pod_autoscaler: Object) -> ReplicaState | None:
        """Return the state of the revision's adapters; None if it is unknown."""
        return adapters_state(_wanted(pod_autoscaler), self._reports.get(key, {}))

    async def hasten(self, key: Key, pod_autoscaler: Object, pods: Iterable[Object]) -> None:
        """Let the kubelet bring the list to the Pods that have another one. Raises nothing: it comes anyway."""
        wanted, reports = _wanted(pod_autoscaler), self._reports.get(key, {})
        for pod in pods:
            report = reports.get(str(key_of(pod)))
            if report is None or report.list == wanted or annotations_of(pod).get(WANTED_ANNOTATION) == wanted:
                continue
            patch = {"metadata": {"annotations": {WANTED_ANNOTATION: wanted}}}
            try:
                await self._cluster.patch(POD, name_of(pod), patch, namespace_of(pod), manager=self._manager)
            except ClusterError as error:
                log.info("%s: its list of adapters is not hastened: %s", key_of(pod), error)

    def forget(self, key: Key) -> None:
        """Delete a revision that is gone."""
        self._reports.pop(key, None)


def adapters_state(wanted: str, reports: Mapping[str, AdapterReport]) -> ReplicaState | None:
    """Return the state for the list with the id `wanted`, "" for none; `reports` are by Pod."""
    if not (wanted and reports):
        return None
    current = [report for _, report in sorted(reports.items()) if report.list == wanted]
    faults = {name: text for report in current for name, text in report.faults.items()}
    if faults:
        message = "; ".join(f'adapter "{name}": {text}' for name, text in sorted(faults.items()))
        return ReplicaState("False", FAILED, message)
    if behind := len(reports) - len(current):
        return ReplicaState("Unknown", LOADING, f"{behind} of {len(reports)} replicas do not have the new adapters yet")
    return ReplicaState("True")


def _wanted(pod_autoscaler: Object) -> str:
    try:
        return str(json.loads(annotations_of(pod_autoscaler).get(ADAPTERS_ANNOTATION, "{}")).get("id", ""))
    except (ValueError, AttributeError, RecursionError):
        return ""
