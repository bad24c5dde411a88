"""The Deployment and the PodAutoscaler of a Revision.

Sources: knative/serving `pkg/reconciler/revision/resources/{deploy,meta,env_var,pa}.go` and
`pkg/reconciler/revision/reconcile_resources.go`. The embedded cluster has no queue-proxy, so a Pod has one container,
which keeps its readiness probe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clusters.base.durations import parse_duration
from clusters.base.objects import (
    ANNOTATION_CLASS,
    ANNOTATION_NO_GC,
    DEPLOYMENT,
    LABEL_CONFIGURATION,
    LABEL_REVISION,
    LABEL_REVISION_UID,
    LABEL_ROUTE,
    LABEL_SERVICE,
    POD_AUTOSCALER,
    REVISION,
    Object,
    annotations_of,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
    uid_of,
)
from clusters.embedded.knative import names
from clusters.embedded.knative.defaults import KnativeSettings
from clusters.embedded.knative.traffic import protocol_of

_OWN_FIELDS = ("containerConcurrency", "timeoutSeconds", "responseStartTimeoutSeconds", "idleTimeoutSeconds")
_ROUTING_LABELS = (LABEL_ROUTE, names.LABEL_ROUTING_STATE)
_ROUTING_ANNOTATIONS = (
    names.ANNOTATION_LAST_PINNED,
    ANNOTATION_NO_GC,
    names.ANNOTATION_ROUTING_STATE_MODIFIED,
    names.ANNOTATION_ROUTES,
)
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_PORT_HANDLERS = ("httpGet", "tcpSocket", "grpc")

REACHABLE, UNREACHABLE, REACHABILITY_UNKNOWN = "Reachable", "Unreachable", ""

_METRICS = {names.CLASS_KPA: "concurrency", names.CLASS_HPA: "cpu"}
"""Default metric of Knative's classes. For any other class, Knative's webhook sets the empty string."""

_DEFAULTED = (ANNOTATION_CLASS, names.ANNOTATION_METRIC)  # may be on the PodAutoscaler only


def make_deployment(revision: Object, settings: KnativeSettings) -> Object:
    """Return the Deployment of the Revision. `spec.replicas` is only its initial scale."""
    labels = child_labels(revision)
    annotations = {
        key: value for key, value in child_annotations(revision).items() if not key.startswith(names.AUTOSCALING_GROUP)
    }
    initial_scale = annotations_of(revision).get(names.ANNOTATION_INITIAL_SCALE)
    stated = annotations_of(revision).get(names.ANNOTATION_PROGRESS_DEADLINE)
    deadline = int(parse_duration(stated, signed=True)) if stated else settings.progress_deadline
    return {
        "apiVersion": DEPLOYMENT.api_version,
        "kind": DEPLOYMENT.kind,
        "metadata": {
            "name": names.deployment(name_of(revision)),
            "namespace": namespace_of(revision),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner_reference(REVISION, revision)],
        },
        "spec": {
            "replicas": settings.initial_scale if initial_scale is None else int(initial_scale),
            "selector": {"matchLabels": {LABEL_REVISION_UID: uid_of(revision)}},
            "progressDeadlineSeconds": deadline,
            "revisionHistoryLimit": 0,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0}},
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": _pod_spec(revision)},
        },
    }


def child_labels(revision: Object) -> dict[str, str]:
    """Return the labels of a Revision's children: its own without the routing state, its name and uid, and `app`."""
    labels = {key: value for key, value in labels_of(revision).items() if key not in _ROUTING_LABELS}
    labels |= {LABEL_REVISION: name_of(revision), LABEL_REVISION_UID: uid_of(revision)}
    labels.setdefault(names.LABEL_APP, name_of(revision))
    return labels


def child_annotations(revision: Object) -> dict[str, str]:
    """Return the annotations of a Revision's children: its own without those that depend on traffic."""
    return {key: value for key, value in annotations_of(revision).items() if key not in _ROUTING_ANNOTATIONS}


def _pod_spec(revision: Object) -> Object:
    spec: Object = {key: value for key, value in revision["spec"].items() if key not in _OWN_FIELDS}
    spec["terminationGracePeriodSeconds"] = revision["spec"]["timeoutSeconds"]
    containers = spec["containers"]
    spec["containers"] = [
        _container(container, revision, serving=len(containers) == 1 or bool(container.get("ports")))
        for container in containers
    ]
    return spec


def _container(container: Object, revision: Object, *, serving: bool) -> Object:
    made: Object = {"terminationMessagePolicy": "FallbackToLogsOnError", **container}
    environment: list[Any] = list(container.get("env") or ())
    if serving:
        ports: Sequence[Object] = container.get("ports") or ({},)
        port = int(ports[0].get("containerPort") or names.DEFAULT_USER_PORT)
        made["ports"] = [{"name": names.USER_PORT_NAME, "containerPort": port}]
        made |= {probe: _probe(container[probe], port) for probe in _PROBES if container.get(probe)}
        environment.append({"name": "PORT", "value": str(port)})
    labels = labels_of(revision)
    made["env"] = [
        *environment,
        {"name": "K_REVISION", "value": name_of(revision)},
        {"name": "K_CONFIGURATION", "value": labels.get(LABEL_CONFIGURATION, "")},
        {"name": "K_SERVICE", "value": labels.get(LABEL_SERVICE, "")},
    ]
    return made


def _probe(probe: Object, user_port: int) -> Object:
    """Return the probe with the user port if it has no port number."""
    made = dict(probe)
    for handler in _PORT_HANDLERS:
        if handler in made and not isinstance(made[handler].get("port") or "", int):
            made[handler] = {**made[handler], "port": user_port}
    return made


def make_pod_autoscaler(revision: Object, deployment: Object, settings: KnativeSettings, *, failed: bool) -> Object:
    """Return the PodAutoscaler. `failed`: the Revision's resources or its container failed."""
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
    """Return the spec of the PodAutoscaler. An Unknown `reachability` is the empty string, which is omitted."""
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
    """Return whether traffic can reach the Revision, by its routing state.

    A failed one without ready replicas is unreachable.
    """
    wanted = int(deployment["spec"].get("replicas", 1))
    ready = int((deployment.get("status") or {}).get("readyReplicas") or 0)
    if failed and wanted > 0 and ready == 0:
        return UNREACHABLE
    states = {names.STATE_ACTIVE: REACHABLE, names.STATE_RESERVE: UNREACHABLE}
    return states.get(labels_of(revision).get(names.LABEL_ROUTING_STATE, ""), REACHABILITY_UNKNOWN)


def synced_annotations(autoscaler: Object, revision: Object) -> Mapping[str, str]:
    """Return the annotations of the PodAutoscaler: Knative's are copied from the Revision, and others are kept."""
    kept = {
        key: value
        for key, value in annotations_of(autoscaler).items()
        if key in _DEFAULTED or not key.startswith(names.AUTOSCALING_GROUP)
    }
    return {**kept, **child_annotations(revision)}
