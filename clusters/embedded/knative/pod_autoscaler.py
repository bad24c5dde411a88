"""The PodAutoscaler of a Revision, and which of its annotations belong to the Revision: pure.

Source: knative/serving `pkg/reconciler/revision/resources/pa.go`, `pkg/reconciler/revision/reconcile_resources.go`.
"""

from __future__ import annotations

from collections.abc import Mapping

from clusters.base.objects import (
    ANNOTATION_CLASS,
    DEPLOYMENT,
    POD_AUTOSCALER,
    REVISION,
    Object,
    annotations_of,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
)
from clusters.embedded.knative import names
from clusters.embedded.knative.admission.annotation_rules import HPA, KPA
from clusters.embedded.knative.deployment import child_annotations, child_labels
from clusters.embedded.knative.settings import Settings
from clusters.embedded.knative.traffic import protocol_of

REACHABLE, UNREACHABLE, REACHABILITY_UNKNOWN = "Reachable", "Unreachable", ""

_METRICS = {KPA: "concurrency", HPA: "cpu"}
"""Default metric of Knative's classes; Knative's webhook writes the empty text for any other class."""

_DEFAULTED = (ANNOTATION_CLASS, names.ANNOTATION_METRIC)  # may stand on the PodAutoscaler alone


def make_pod_autoscaler(revision: Object, deployment: Object, settings: Settings, *, failed: bool) -> Object:
    """The PodAutoscaler; `failed` says whether the Revision's resources or container failed."""
    annotations = {ANNOTATION_CLASS: settings.autoscaler_class, **child_annotations(revision)}
    annotations.setdefault(names.ANNOTATION_METRIC, _METRICS.get(annotations[ANNOTATION_CLASS], ""))
    return {
        "apiVersion": POD_AUTOSCALER.api_version,
        "kind": POD_AUTOSCALER.kind,
        "metadata": {
            "name": names.pod_autoscaler(name_of(revision)),
            "namespace": namespace_of(revision),
            "labels": child_labels(revision),
            "annotations": annotations,
            "ownerReferences": [owner_reference(REVISION, revision)],
        },
        "spec": make_spec(revision, deployment, failed=failed),
    }


def make_spec(revision: Object, deployment: Object, *, failed: bool) -> Object:
    """The PodAutoscaler's spec; `reachability` Unknown is the empty string, which is left out."""
    spec: Object = {
        "containerConcurrency": int(revision["spec"].get("containerConcurrency") or 0),
        "protocolType": protocol_of(revision),
        "scaleTargetRef": {
            "apiVersion": DEPLOYMENT.api_version,
            "kind": DEPLOYMENT.kind,
            "name": names.deployment(name_of(revision)),
        },
    }
    reachable = reachability(revision, deployment, failed=failed)
    return {**spec, "reachability": reachable} if reachable else spec


def reachability(revision: Object, deployment: Object, *, failed: bool) -> str:
    """Whether traffic can reach the Revision: by its routing state; never when it failed without a ready replica."""
    wanted = int(deployment["spec"].get("replicas", 1))
    ready = int((deployment.get("status") or {}).get("readyReplicas") or 0)
    if failed and wanted > 0 and ready == 0:
        return UNREACHABLE
    states = {names.STATE_ACTIVE: REACHABLE, names.STATE_RESERVE: UNREACHABLE}
    return states.get(labels_of(revision).get(names.LABEL_ROUTING_STATE, ""), REACHABILITY_UNKNOWN)


def synced_annotations(autoscaler: Object, revision: Object) -> Mapping[str, str]:
    """The annotations that the PodAutoscaler should have: foreign ones stay, Knative's are the Revision's alone."""
    kept = {
        key: value
        for key, value in annotations_of(autoscaler).items()
        if key in _DEFAULTED or not key.startswith(names.AUTOSCALING_GROUP)
    }
    return {**kept, **child_annotations(revision)}
