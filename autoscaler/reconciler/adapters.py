"""Whether the replicas of a revision serve the adapters that its language model wants. Pure but for `AdapterReports`.

no replica has reported                 None: the condition stays
a replica reports a fault of its list   False    AdapterFailed
a replica has another list              Unknown  Loading
else                                    True
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from autoscaler.metrics.stat import AdapterReport, Sample
from autoscaler.reconciler.status import ReplicaState
from autoscaler.types import ADAPTERS_ANNOTATION
from clusters.base.objects import Key, Object, annotations_of

FAILED = "AdapterFailed"
LOADING = "Loading"


class AdapterReports:
    """The last reports of replicas, to notice changes."""

    def __init__(self) -> None:
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
