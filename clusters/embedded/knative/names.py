"""Names, labels and annotations of the objects of Knative Serving, with one function for the name of each child.

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
CLASS_KPA, CLASS_HPA = f"kpa.{AUTOSCALING_GROUP}", f"hpa.{AUTOSCALING_GROUP}"

STATE_PENDING = "pending"  # new, and not processed by a Route yet
STATE_ACTIVE = "active"  # a Route sends traffic to it
STATE_RESERVE = "reserve"  # no Route sends traffic to it: it may scale to zero and be deleted

CLUSTER_LOCAL = "cluster-local"
CLUSTER_DOMAIN = "svc.cluster.local"
USER_CONTAINER = "user-container"  # default name of a container
USER_PORT_NAME = "user-port"
DEFAULT_USER_PORT = 8080

LONGEST_NAME = 63  # characters of a DNS label (RFC 1123), the longest name of a child
MD5_LENGTH = 32  # hexadecimal digits
HEAD = LONGEST_NAME - MD5_LENGTH  # characters of the parent's name before the hash


def child_name(parent: str, suffix: str) -> str:
    """Return `parent` and `suffix`, with a hash if they have more than 63 characters together (`kmeta.ChildName`)."""
    if len(parent) <= LONGEST_NAME - len(suffix):
        return parent + suffix
    if HEAD - len(suffix) <= 0:
        hashed = parent[:HEAD] + _md5(parent + suffix)
        return re.sub(r"[^a-zA-Z0-9]+$", "", hashed + suffix[: LONGEST_NAME - len(hashed)])
    return parent[: HEAD - len(suffix)] + _md5(parent) + suffix


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def configuration(service: str) -> str:
    """Return the name of a Service's Configuration."""
    return service


def route(service: str) -> str:
    """Return the name of a Service's Route."""
    return service


def revision(configuration: str, generation: int) -> str:
    """Return the name of the Revision of a Configuration's generation, as in `magika-00001`."""
    return child_name(configuration, f"-{generation:05d}")


def deployment(revision: str) -> str:
    """Return the name of a Revision's Deployment."""
    return child_name(revision, "-deployment")


def pod_autoscaler(revision: str) -> str:
    """Return the name of a Revision's PodAutoscaler, which is also that of its ServerlessService and in an Ingress."""
    return revision


def ingress(route: str) -> str:
    """Return the name of a Route's Ingress."""
    return child_name(route, "")


def hostname(route: str, tag: str) -> str:
    """Return the first label of a host: the Route's name, or `TAG-NAME` (`tag-template` of config-network)."""
    return f"{tag}-{route}" if tag else route


def local_host(namespace: str, name: str) -> str:
    """Return the cluster-local host, as in `magika.default.svc.cluster.local`."""
    return f"{name}.{namespace}.{CLUSTER_DOMAIN}"


def routes_of(obj: Object) -> list[str]:
    """Return the Routes in the annotation of an object, sorted."""
    return sorted(filter(None, annotations_of(obj).get(ANNOTATION_ROUTES, "").split(",")))
