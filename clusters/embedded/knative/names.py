"""Names, labels and annotations of the objects that Knative Serving makes; each child's name comes from one function.

Sources: knative/serving `pkg/apis/serving/register.go` and `pkg/reconciler/*/resources/names`, knative/pkg `kmeta`.
"""

from __future__ import annotations

import hashlib
import re

from clusters.base.objects import Object, annotations_of

LABEL_CONFIGURATION_UID = "serving.knative.dev/configurationUID"
LABEL_SERVICE_UID = "serving.knative.dev/serviceUID"
LABEL_ROUTE_NAMESPACE = "serving.knative.dev/routeNamespace"
LABEL_ROUTING_STATE = "serving.knative.dev/routingState"
LABEL_APP = "app"

ANNOTATION_ROUTES = (
    "serving.knative.dev/routes"  # "a,b": the Routes that send traffic to this Revision or Configuration
)
ANNOTATION_ROUTING_STATE_MODIFIED = "serving.knative.dev/routingStateModified"  # when the label last changed, RFC 3339
ANNOTATION_LAST_PINNED = "serving.knative.dev/lastPinned"
ANNOTATION_PROGRESS_DEADLINE = "serving.knative.dev/progress-deadline"  # "600s"
ANNOTATION_ROLLOUT_DURATION = "serving.knative.dev/rollout-duration"  # "60s"
ANNOTATION_INITIAL_SCALE = "autoscaling.knative.dev/initial-scale"  # "1"
ANNOTATION_METRIC = "autoscaling.knative.dev/metric"  # "concurrency"
ANNOTATION_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
AUTOSCALING_GROUP = "autoscaling.knative.dev"

STATE_PENDING = "pending"  # just made, no Route has looked at it yet
STATE_ACTIVE = "active"  # some Route sends traffic to it
STATE_RESERVE = "reserve"  # routed away: may go to zero, may be collected

CLUSTER_LOCAL = "cluster-local"
CLUSTER_DOMAIN = "svc.cluster.local"
USER_CONTAINER = "user-container"  # what a container without name is called
USER_PORT_NAME = "user-port"
DEFAULT_USER_PORT = 8080

LONGEST_NAME = 63  # characters of a DNS label (RFC 1123), the longest name of a child
MD5_LENGTH = 32  # hexadecimal digits
HEAD = LONGEST_NAME - MD5_LENGTH  # what of the parent's name is kept in front of the hash


def child_name(parent: str, suffix: str) -> str:
    """`parent` and `suffix`, hashed in the middle when together longer than 63 characters (`kmeta.ChildName`)."""
    if len(parent) <= LONGEST_NAME - len(suffix):
        return parent + suffix
    if HEAD - len(suffix) <= 0:
        hashed = parent[:HEAD] + _md5(parent + suffix)
        return re.sub(r"[^a-zA-Z0-9]+$", "", hashed + suffix[: LONGEST_NAME - len(hashed)])
    return parent[: HEAD - len(suffix)] + _md5(parent) + suffix


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def configuration(service: str) -> str:
    """The Configuration of a Service."""
    return service


def route(service: str) -> str:
    """The Route of a Service."""
    return service


def revision(configuration: str, generation: int) -> str:
    """The Revision of a Configuration's generation, as in `magika-00001`."""
    return child_name(configuration, f"-{generation:05d}")


def deployment(revision: str) -> str:
    """The Deployment of a Revision."""
    return child_name(revision, "-deployment")


def pod_autoscaler(revision: str) -> str:
    """The PodAutoscaler of a Revision; its ServerlessService and the name in an Ingress are the same."""
    return revision


def ingress(route: str) -> str:
    """The Ingress of a Route."""
    return child_name(route, "")


def hostname(route: str, tag: str) -> str:
    """The first label of a host: the Route's name, `TAG-NAME` for a tag (`tag-template` of config-network)."""
    return f"{tag}-{route}" if tag else route


def local_host(namespace: str, name: str) -> str:
    """The host inside the cluster, as in `magika.default.svc.cluster.local`."""
    return f"{name}.{namespace}.{CLUSTER_DOMAIN}"


def routes_of(obj: Object) -> list[str]:
    """The Routes that an object says send traffic to it, sorted."""
    return sorted(filter(None, annotations_of(obj).get(ANNOTATION_ROUTES, "").split(",")))
