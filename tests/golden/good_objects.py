"""Knative objects that both clusters take, and those that only the stand-in refuses, with the reason."""

from __future__ import annotations

from dataclasses import dataclass

from tests.golden.objects import (
    BOX,
    LABELS,
    NOTES,
    POD,
    TRAFFIC,
    Example,
    changed,
    configuration,
    of_service,
    route,
    scaled,
    service,
    with_traffic,
    with_volume,
)

_BOXES = [{"image": "dev.local/one:1", "ports": [{"containerPort": 8080}]}, {"image": "dev.local/two:1"}]
_LATEST = {"latestRevision": True, "percent": 90, "tag": "new"}
_FIRST = "example-00001"

GOOD = (
    Example("smallest Service", service()),
    Example("smallest Configuration", configuration()),
    Example("smallest Route", route()),
    of_service("labels and annotations of anybody's", (LABELS, {"a": "b"}), (NOTES, {"example.com/a": "b"})),
    of_service("longest name", ("metadata.name", "e" * 63)),
    of_service("largest numbers", (f"{POD}.containerConcurrency", 1000), (f"{POD}.timeoutSeconds", 600)),
    of_service("smallest numbers", (f"{POD}.containerConcurrency", 0), (f"{POD}.timeoutSeconds", 0)),
    of_service(
        "all timeouts",
        (f"{POD}.timeoutSeconds", 60),
        (f"{POD}.idleTimeoutSeconds", 30),
        (f"{POD}.responseStartTimeoutSeconds", 30),
    ),
    of_service(
        "other timeouts above that of the request",
        (f"{POD}.timeoutSeconds", 5),
        (f"{POD}.idleTimeoutSeconds", 601),
        (f"{POD}.responseStartTimeoutSeconds", 6),
    ),
    of_service(
        "account, secrets, links",
        (f"{POD}.serviceAccountName", "default"),
        (f"{POD}.imagePullSecrets", [{"name": "s"}]),
        (f"{POD}.enableServiceLinks", False),
        (f"{POD}.automountServiceAccountToken", False),
    ),
    of_service("two containers and one port", (f"{POD}.containers", _BOXES)),
    of_service("h2c", (f"{BOX}.ports", [{"name": "h2c", "containerPort": 8080}])),
    of_service("port by its number", (f"{BOX}.ports", [{"containerPort": 8080, "protocol": "TCP"}])),
    of_service("image by digest", (f"{BOX}.image", f"example.com/team/model@sha256:{'0' * 64}")),
    of_service(
        "variables",
        (
            f"{BOX}.env",
            [
                {"name": "A", "value": "1"},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
            ],
        ),
        (f"{BOX}.envFrom", [{"secretRef": {"name": "s"}}, {"prefix": "P_", "configMapRef": {"name": "c"}}]),
    ),
    of_service(
        "resources",
        (f"{BOX}.resources", {"limits": {"cpu": 1, "memory": "1.5Gi"}, "requests": {"cpu": "100m", "memory": "1e9"}}),
    ),
    of_service(
        "security",
        (
            f"{BOX}.securityContext",
            {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "runAsGroup": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        ),
    ),
    of_service(
        "how it ends and is pulled",
        (f"{BOX}.imagePullPolicy", "IfNotPresent"),
        (f"{BOX}.terminationMessagePolicy", "FallbackToLogsOnError"),
        (f"{BOX}.terminationMessagePath", "/tmp/reason"),
        (f"{BOX}.workingDir", "/work"),
        (f"{BOX}.command", ["python"]),
        (f"{BOX}.args", ["-m", "x"]),
    ),
    of_service("readiness probe of nothing but times", (f"{BOX}.readinessProbe", {"periodSeconds": 1})),
    of_service(
        "probes",
        (f"{BOX}.readinessProbe", {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 1}),
        (f"{BOX}.livenessProbe", {"tcpSocket": {"port": 8080}}),
        (f"{BOX}.startupProbe", {"exec": {"command": ["true"]}, "failureThreshold": 30}),
        (f"{BOX}.ports", [{"containerPort": 8080}]),
    ),
    of_service("probe of gRPC", (f"{BOX}.readinessProbe", {"grpc": {"port": 8080}})),
    with_volume("empty folder", {"emptyDir": {}}),
    with_volume("empty folder in memory", {"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}),
    with_volume("secret", {"secret": {"secretName": "s"}}, readOnly=True),
    with_volume("secret that is said to be writable", {"secret": {"secretName": "s"}}, readOnly=False),
    with_volume(
        "files of a secret", {"secret": {"secretName": "s", "items": [{"key": "k", "path": "p", "mode": 256}]}}
    ),
    with_volume("config map in a sub-path", {"configMap": {"name": "c"}}, subPath="a"),
    with_volume("projected", {"projected": {"sources": [{"secret": {"name": "s"}}]}}),
    scaled("own class", **{"class": "gpu.autoscaling.knodel.dev"}),
    scaled("bounds that are equal", min_scale="3", max_scale="3"),
    scaled("no upper bound", min_scale="3", max_scale="0"),
    scaled("scales", initial_scale="2", activation_scale="2", target="0.5", target_utilization_percentage="70"),
    scaled("times", window="6s", scale_down_delay="0s", scale_to_zero_pod_retention_period="1m1s"),
    scaled("burst capacity -1", target_burst_capacity="-1"),
    scaled("algorithm of no class", metric_aggregation_algorithm="median"),
    of_service("resources of queue-proxy", (NOTES, {"queue.sidecar.serving.knative.dev/cpu-resource-request": "10m"})),
    scaled("requests per second", metric="rps"),
    of_service("progress deadline", (NOTES, {"serving.knative.dev/progress-deadline": "90s"})),
    of_service("rollout", ("metadata.annotations", {"serving.knative.dev/rollout-duration": "90s"})),
    of_service("cluster-local", ("metadata.labels", {"networking.knative.dev/visibility": "cluster-local"})),
    with_traffic("two shares with tags", {"revisionName": _FIRST, "percent": 10, "tag": "old"}, _LATEST),
    with_traffic("tag without a share", {"latestRevision": True, "percent": 100}, {"revisionName": _FIRST, "tag": "t"}),
    with_traffic(
        "revision said to be not the latest", {"revisionName": _FIRST, "latestRevision": False, "percent": 100}
    ),
    of_service("no traffic said", (TRAFFIC, [])),
    Example(
        "Route to a Revision",
        changed(route(), (TRAFFIC, [{"revisionName": _FIRST, "percent": 100, "latestRevision": False}])),
    ),
)
"""Accepted by both."""


@dataclass(frozen=True, slots=True)
class Stricter:
    """An object that the stand-in alone refuses, at `field`, and why."""

    example: Example
    field: str
    reason: str

    def __str__(self) -> str:
        return self.example.name


_NO_POD = "Knative takes it, and Kubernetes refuses the Deployment that comes of it: told at once it is no riddle"

STRICTER = (
    Stricter(
        of_service("Revision with a name of its own", ("spec.template.metadata.name", "example-mine")),
        "spec.template.metadata.name",
        "the names of Revisions are generated here",
    ),
    Stricter(
        with_traffic("tag whose host is too long", {"latestRevision": True, "percent": 100, "tag": "t" * 60}),
        "spec.traffic[0].tag",
        "Knative takes it and the Route fails: its host would be no DNS label",
    ),
    Stricter(
        of_service("unknown pull policy", (f"{BOX}.imagePullPolicy", "Sometimes")),
        f"{POD}.containers[0].imagePullPolicy",
        _NO_POD,
    ),
    Stricter(
        of_service("negative period", (f"{BOX}.livenessProbe", {"httpGet": {"path": "/"}, "periodSeconds": -1})),
        f"{POD}.containers[0].livenessProbe.periodSeconds",
        _NO_POD,
    ),
)
