"""Knative objects that nobody may store: real Knative refuses them, by schema or webhook, and so does the stand-in."""

from __future__ import annotations

from clusters.base.objects import LABEL_SERVICE
from tests.golden.objects import (
    BOX,
    LABELS,
    NOTES,
    POD,
    SCALING,
    TRAFFIC,
    Example,
    changed,
    configuration,
    of_service,
    route,
    scaled,
    with_traffic,
    with_volume,
)

ALL = {"latestRevision": True, "percent": 100}
TWO = [{"image": "dev.local/one:1"}, {"image": "dev.local/two:1"}]
BOTH_PORTS = [{**box, "ports": [{"containerPort": 8080 + number}]} for number, box in enumerate(TWO)]

_SHAPES = (
    of_service("unknown field at the top", ("spc", {})),
    of_service("unknown field in spec", ("spec.templates", {})),
    of_service("unknown field in the template", ("spec.template.specs", {})),
    of_service("unknown field in the pod", (f"{POD}.container", [])),
    of_service("unknown field in the container", (f"{BOX}.imagename", "x")),
    of_service("unknown field in a probe's handler", (f"{BOX}.startupProbe", {"exec": {"shell": "sh"}})),
    of_service("name with a capital", ("metadata.name", "Example")),
    of_service("name that begins with a digit", ("metadata.name", "1example")),
    of_service("name of 64 characters", ("metadata.name", "e" * 64)),
    of_service("no template", ("spec", {})),
    of_service("label that is a number", (LABELS, {"a": 1})),
    of_service("label whose key is none", ("metadata.labels", {"a b": "c"})),
    of_service("label whose value is none", ("metadata.labels", {"a": "b c"})),
    of_service("annotation whose key is none", ("metadata.annotations", {"a b": "c"})),
)

_PODS = (
    of_service("no container", (f"{POD}.containers", [])),
    of_service("containers that are no list", (f"{POD}.containers", {})),
    of_service("container that is text", (BOX, "x")),
    of_service("two containers with ports", (f"{POD}.containers", BOTH_PORTS)),
    of_service("two containers without a port", (f"{POD}.containers", TWO)),
    of_service("the host's network", (f"{POD}.hostNetwork", True)),
    of_service("the host's processes", (f"{POD}.hostPID", True)),
    of_service("a node of its choice", (f"{POD}.nodeName", "n")),
    of_service("the service account's token", (f"{POD}.automountServiceAccountToken", True)),
    of_service("containerConcurrency -1", (f"{POD}.containerConcurrency", -1)),
    of_service("containerConcurrency 1001", (f"{POD}.containerConcurrency", 1001)),
    of_service("containerConcurrency in quotes", (f"{POD}.containerConcurrency", "4")),
    of_service("timeoutSeconds 601", (f"{POD}.timeoutSeconds", 601)),
    of_service("timeoutSeconds -1", (f"{POD}.timeoutSeconds", -1)),
    of_service("timeoutSeconds true", (f"{POD}.timeoutSeconds", True)),
    of_service("the host's semaphores", (f"{POD}.hostIPC", True)),
    of_service("names of hosts", (f"{POD}.hostAliases", [{"ip": "127.0.0.1", "hostnames": ["x"]}])),
    of_service("grace of its own", (f"{POD}.terminationGracePeriodSeconds", 5)),
    of_service("account that is no name", (f"{POD}.serviceAccountName", "Bad_Name")),
    of_service("unknown field of a pull secret", (f"{POD}.imagePullSecrets", [{"name": "s", "key": "k"}])),
)

_CONTAINERS = (
    of_service("no image", (f"{BOX}.image", "")),
    of_service("image that is no reference", (f"{BOX}.image", "UPPER/case")),
    of_service("lifecycle hook", (f"{BOX}.lifecycle", {"preStop": {"sleep": {"seconds": 1}}})),
    of_service("reserved container name", (f"{BOX}.name", "queue-proxy")),
    of_service("reserved variable PORT", (f"{BOX}.env", [{"name": "PORT", "value": "1"}])),
    of_service("reserved variable K_REVISION", (f"{BOX}.env", [{"name": "K_REVISION", "value": "x"}])),
    of_service("variable that is a number", (f"{BOX}.env", [{"name": "A", "value": 1}])),
    of_service("variable without a name", (f"{BOX}.env", [{"value": "1"}])),
    of_service(
        "variable from a field",
        (f"{BOX}.env", [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
    ),
    of_service("variables from nowhere", (f"{BOX}.envFrom", [{"prefix": "A"}])),
    of_service("arguments that are no list", (f"{BOX}.args", "x")),
    of_service("argument that is a number", (f"{BOX}.args", [1])),
    of_service("queue-proxy's port", (f"{BOX}.ports", [{"containerPort": 8012}])),
    of_service("port 70000", (f"{BOX}.ports", [{"containerPort": 70000}])),
    of_service("port of another name", (f"{BOX}.ports", [{"containerPort": 80, "name": "grpc"}])),
    of_service("UDP port", (f"{BOX}.ports", [{"containerPort": 80, "protocol": "UDP"}])),
    of_service("port on the host", (f"{BOX}.ports", [{"containerPort": 80, "hostPort": 80}])),
    of_service("two ports", (f"{BOX}.ports", [{"containerPort": 80}, {"containerPort": 81, "name": "h2c"}])),
    of_service("claims of resources", (f"{BOX}.resources", {"claims": [{"name": "gpu"}]})),
    of_service("quantity that is none", (f"{BOX}.resources", {"limits": {"cpu": "much"}})),
    of_service("privileged", (f"{BOX}.securityContext", {"privileged": True})),
    of_service("capability NET_ADMIN", (f"{BOX}.securityContext", {"capabilities": {"add": ["NET_ADMIN"]}})),
    of_service("user -1", (f"{BOX}.securityContext", {"runAsUser": -1})),
    of_service("mount of no volume", (f"{BOX}.volumeMounts", [{"name": "x", "mountPath": "/x"}])),
    of_service("terminal", (f"{BOX}.tty", True)),
    of_service("port -1", (f"{BOX}.ports", [{"containerPort": -1}])),
    of_service("unknown message policy", (f"{BOX}.terminationMessagePolicy", "Never")),
    of_service("SELinux options", (f"{BOX}.securityContext", {"seLinuxOptions": {"level": "s0"}})),
)

_PROBES = (
    of_service("liveness probe without a handler", (f"{BOX}.livenessProbe", {})),
    of_service(
        "readiness probe with two handlers",
        (f"{BOX}.readinessProbe", {"httpGet": {"path": "/"}, "tcpSocket": {"port": 8080}}),
    ),
    of_service(
        "timeout of a probe without a period",
        (f"{BOX}.readinessProbe", {"httpGet": {"path": "/"}, "periodSeconds": 0, "timeoutSeconds": 2}),
    ),
    of_service("probe of another port's name", (f"{BOX}.readinessProbe", {"httpGet": {"path": "/", "port": "other"}})),
    of_service("negative delay", (f"{BOX}.readinessProbe", {"httpGet": {"path": "/"}, "initialDelaySeconds": -1})),
)

_VOLUMES = (
    with_volume("volume of the host's", {"hostPath": {"path": "/"}}),
    with_volume("volume of nothing", {}),
    with_volume("volume of two sources", {"emptyDir": {}, "secret": {"secretName": "s"}}),
    with_volume("relative mount path", {"emptyDir": {}}, mountPath="x"),
    with_volume("reserved mount path", {"emptyDir": {}}, mountPath="/dev/../"),
    with_volume("writable secret by a sub-path expression", {"secret": {"secretName": "s"}}, subPathExpr="a"),
    with_volume("no mount path", {"emptyDir": {}}, mountPath=""),
    with_volume("medium that is none", {"emptyDir": {"medium": "Disk"}}),
    with_volume("negative limit of size", {"emptyDir": {"sizeLimit": "-1"}}),
    with_volume("secret's file without a path", {"secret": {"secretName": "s", "items": [{"key": "k"}]}}),
    with_volume("config map's file without a key", {"configMap": {"name": "c", "items": [{"path": "p"}]}}),
    with_volume("projection of nothing", {"projected": {"sources": [{}]}}),
    with_volume("projection of a secret without a name", {"projected": {"sources": [{"secret": {}}]}}),
    with_volume("projection of a token without a path", {"projected": {"sources": [{"serviceAccountToken": {}}]}}),
    with_volume("volume that is mounted by another name", {"emptyDir": {}}, name="other"),
    of_service(
        "volume whose name is none",
        (f"{POD}.volumes", [{"name": "A_b", "emptyDir": {}}]),
        (f"{BOX}.volumeMounts", [{"name": "A_b", "mountPath": "/x"}]),
    ),
    of_service("volume that is not mounted", (f"{POD}.volumes", [{"name": "files", "emptyDir": {}}])),
)

_ANNOTATIONS = (
    of_service("scaling of the Service itself", ("metadata.annotations", {f"{SCALING}/min-scale": "1"})),
    of_service("rollout of half seconds", ("metadata.annotations", {"serving.knative.dev/rollout-duration": "1.5s"})),
    of_service("progress deadline in words", (NOTES, {"serving.knative.dev/progress-deadline": "ten"})),
    of_service("progress deadline of half a second", (NOTES, {"serving.knative.dev/progress-deadline": "500ms"})),
    of_service("negative rollout", ("metadata.annotations", {"serving.knative.dev/rollout-duration": "-1s"})),
    of_service("unknown annotation of networking", (NOTES, {"networking.knative.dev/speed": "high"})),
    of_service(
        "quantity of queue-proxy's that is none",
        (NOTES, {"queue.sidecar.serving.knative.dev/cpu-resource-request": "much"}),
    ),
    Example(
        "scaling of a Configuration itself",
        changed(configuration(), ("metadata.annotations", {f"{SCALING}/min-scale": "1"})),
    ),
    Example("scaling of a Route", changed(route(), ("metadata.annotations", {f"{SCALING}/min-scale": "1"}))),
    scaled("min-scale beyond 32 bits", min_scale="2147483648"),
    scaled("min-scale above max-scale", min_scale="5", max_scale="4"),
    scaled("min-scale -1", min_scale="-1"),
    scaled("max-scale in words", max_scale="many"),
    scaled("unknown class of Knative's", **{"class": "mine.autoscaling.knative.dev"}),
    scaled("target 0", target="0"),
    scaled("target in words", target="few"),
    scaled("utilization 101 %", target_utilization_percentage="101"),
    scaled("burst capacity -2", target_burst_capacity="-2"),
    scaled("panic window of half a percent", panic_window_percentage="0.5"),
    scaled("panic threshold of 100 %", panic_threshold_percentage="100"),
    scaled("window of 5 s", window="5s"),
    scaled("window of 2 h", window="2h"),
    scaled("window of milliseconds", window="6500ms"),
    scaled("negative delay of scale-down", scale_down_delay="-1s"),
    scaled("retention in words", scale_to_zero_pod_retention_period="soon"),
    scaled("metric of the other class", metric="cpu", **{"class": "kpa.autoscaling.knative.dev"}),
    scaled("unknown algorithm", metric_aggregation_algorithm="median", **{"class": "kpa.autoscaling.knative.dev"}),
    scaled("retention of 2 h", scale_to_zero_pod_retention_period="2h"),
    scaled("activation scale 1", activation_scale="1"),
    scaled("activation scale above max-scale", activation_scale="5", max_scale="4"),
)

_TRAFFIC = (
    with_traffic("90 % in all", {"latestRevision": True, "percent": 90}),
    with_traffic("110 % in all", {**ALL, "percent": 60}, {"revisionName": "example-00001", "percent": 50}),
    with_traffic("101 %", {"latestRevision": True, "percent": 101}),
    with_traffic("percent in quotes", {"latestRevision": True, "percent": "100"}),
    with_traffic("negative percent", {**ALL, "percent": -1}, ALL),
    with_traffic("neither latest nor a revision", {"latestRevision": False, "percent": 100}),
    with_traffic("latest and a revision", {**ALL, "revisionName": "a"}),
    with_traffic("a Configuration's name in a Service", {"configurationName": "a", "percent": 100}),
    with_traffic("tag with a capital", {**ALL, "tag": "Blue"}),
    with_traffic("tag that is used twice", {**ALL, "tag": "a"}, {"revisionName": "x", "tag": "a", "percent": 0}),
    with_traffic("URL that is the platform's to say", {**ALL, "url": "http://example.com"}),
    with_traffic("revision name with a blank", {"revisionName": "a b", "percent": 100}),
    with_traffic("unknown field in a target", {**ALL, "weight": 1}),
    of_service("traffic that is no list", (TRAFFIC, {})),
    Example("Route to nowhere", changed(route(), (TRAFFIC, []))),
    Example("Route without a name to go to", changed(route(), (TRAFFIC, [ALL]))),
    Example(
        "Route to both kinds of names",
        changed(route(), (TRAFFIC, [{"revisionName": "a", "configurationName": "b", "percent": 100}])),
    ),
    Example("Route with a Service's label and no owner", changed(route(), ("metadata.labels", {LABEL_SERVICE: "x"}))),
    Example(
        "Configuration with a Service's label and no owner",
        changed(configuration(), ("metadata.labels", {LABEL_SERVICE: "x"})),
    ),
)

BAD = (*_SHAPES, *_PODS, *_CONTAINERS, *_PROBES, *_VOLUMES, *_ANNOTATIONS, *_TRAFFIC)
"""All of them."""
