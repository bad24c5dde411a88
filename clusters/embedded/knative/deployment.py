"""The Deployment of a Revision: pure.

Source: knative/serving `pkg/reconciler/revision/resources/{deploy,meta,env_var}.go`. There is no queue-proxy on the
embedded cluster, so the container keeps its readiness probe and its Pod has one container.
"""

from __future__ import annotations

from typing import Any

from clusters.base.durations import parse_duration
from clusters.base.objects import (
    ANNOTATION_NO_GC,
    DEPLOYMENT,
    LABEL_CONFIGURATION,
    LABEL_REVISION,
    LABEL_REVISION_UID,
    LABEL_ROUTE,
    LABEL_SERVICE,
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
from clusters.embedded.knative.settings import Settings

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


def make_deployment(revision: Object, settings: Settings) -> Object:
    """The Deployment that runs the Revision; its replicas are only where it starts."""
    labels = child_labels(revision)
    annotations = {
        key: value for key, value in child_annotations(revision).items() if not key.startswith(names.AUTOSCALING_GROUP)
    }
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
            "replicas": _initial_scale(revision, settings),
            "selector": {"matchLabels": {LABEL_REVISION_UID: uid_of(revision)}},
            "progressDeadlineSeconds": _progress_deadline(revision, settings),
            "revisionHistoryLimit": 0,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0}},
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": _pod_spec(revision)},
        },
    }


def child_labels(revision: Object) -> dict[str, str]:
    """The labels of what a Revision makes: its own without the routing state, its name and uid, and `app`."""
    labels = {key: value for key, value in labels_of(revision).items() if key not in _ROUTING_LABELS}
    labels |= {LABEL_REVISION: name_of(revision), LABEL_REVISION_UID: uid_of(revision)}
    labels.setdefault(names.LABEL_APP, name_of(revision))
    return labels


def child_annotations(revision: Object) -> dict[str, str]:
    """The annotations of what a Revision makes: its own without those that change as traffic moves."""
    return {key: value for key, value in annotations_of(revision).items() if key not in _ROUTING_ANNOTATIONS}


def _initial_scale(revision: Object, settings: Settings) -> int:
    asked = annotations_of(revision).get(names.ANNOTATION_INITIAL_SCALE)
    return settings.initial_scale if asked is None else int(asked)


def _progress_deadline(revision: Object, settings: Settings) -> int:
    asked = annotations_of(revision).get(names.ANNOTATION_PROGRESS_DEADLINE)
    return settings.progress_deadline if not asked else int(parse_duration(asked, signed=True))


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
        port = _user_port(container)
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


def _user_port(container: Object) -> int:
    for port in container.get("ports") or ():
        return int(port.get("containerPort") or names.DEFAULT_USER_PORT)
    return names.DEFAULT_USER_PORT


def _probe(probe: Object, user_port: int) -> Object:
    """A probe without a port number asks the user's port."""
    made = dict(probe)
    for handler in _PORT_HANDLERS:
        if handler in made and not isinstance(made[handler].get("port") or "", int):
            made[handler] = {**made[handler], "port": user_port}
    return made
