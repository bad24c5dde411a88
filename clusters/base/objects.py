"""Kubernetes objects, and the kinds that Knodel reads or writes.

An object is a plain JSON value (`Object`). Never change an object from a cluster or an informer in place: use
`copy.deepcopy` first, or build a new one. The constants of type `Kind` are here, so that no other module repeats a
group, a version or a plural.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

Object = dict[str, Any]
"""A Kubernetes object as JSON."""


class Key(NamedTuple):
    """Namespace and name of an object. `namespace` is empty for cluster-scoped kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """A kind of object. Kinds with the same group, version and plural are equal.

    `status`: `.status` changes only through the `status` subresource, and changes of `metadata` and `status` do not
    raise `metadata.generation`. `scale`: the kind has the `scale` subresource (`.spec.replicas`). `atomic`: managers
    own `.spec` as one field (`x-kubernetes-map-type: atomic`), for objects that are written once. `resource` is
    `plural.group`, as in `models.knodel.dev`, or the plural in the core group. `api_version` is `group/version`, or the
    version in the core group.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    status: bool = True
    scale: bool = False
    atomic: bool = False
    short_names: tuple[str, ...] = ()
    resource: str = field(init=False, repr=False)
    api_version: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "api_version", f"{self.group}/{self.version}" if self.group else self.version)
        object.__setattr__(self, "resource", f"{self.plural}.{self.group}" if self.group else self.plural)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Kind) and self.resource == other.resource and self.version == other.version

    def __hash__(self) -> int:
        return hash(self.resource)

    def __str__(self) -> str:
        return self.resource


NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False, short_names=("ns",))
POD = Kind("", "v1", "Pod", "pods", short_names=("po",))
SECRET = Kind("", "v1", "Secret", "secrets", status=False)
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", status=False, short_names=("cm",))
CORE_SERVICE = Kind("", "v1", "Service", "services", short_names=("svc",))
EVENT = Kind("", "v1", "Event", "events", status=False, short_names=("ev",))
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments", scale=True, short_names=("deploy",))
REPLICA_SET = Kind("apps", "v1", "ReplicaSet", "replicasets", scale=True, short_names=("rs",))
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases", status=False)
SERVICE = Kind("serving.knative.dev", "v1", "Service", "services", short_names=("kservice", "ksvc"))
CONFIGURATION = Kind("serving.knative.dev", "v1", "Configuration", "configurations", short_names=("config", "cfg"))
REVISION = Kind("serving.knative.dev", "v1", "Revision", "revisions", short_names=("rev",))
ROUTE = Kind("serving.knative.dev", "v1", "Route", "routes", short_names=("rt",))
POD_AUTOSCALER = Kind(
    "autoscaling.internal.knative.dev",
    "v1alpha1",
    "PodAutoscaler",
    "podautoscalers",
    short_names=("kpa", "pa"),
)
SERVERLESS_SERVICE = Kind(
    "networking.internal.knative.dev",
    "v1alpha1",
    "ServerlessService",
    "serverlessservices",
    short_names=("sks",),
)
INGRESS = Kind("networking.internal.knative.dev", "v1alpha1", "Ingress", "ingresses", short_names=("kingress", "king"))
NODE = Kind("", "v1", "Node", "nodes", namespaced=False, short_names=("no",))
RESOURCE_SLICE = Kind("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", namespaced=False, status=False)
DEVICE_CLASS = Kind("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", namespaced=False, status=False)
RESOURCE_CLAIM = Kind("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims")
MODEL = Kind("knodel.dev", "v1alpha1", "Model", "models")
WARM_POOL = Kind("knodel.dev", "v1alpha1", "WarmPool", "warmpools")
EVENT_SOURCE = Kind("knodel.dev", "v1alpha1", "EventSource", "eventsources")
MODEL_EVENT = Kind("knodel.dev", "v1alpha1", "ModelEvent", "modelevents", atomic=True)

OWN_KINDS = (MODEL, WARM_POOL, EVENT_SOURCE, MODEL_EVENT)
"""The kinds of the API group knodel.dev."""

KINDS = (
    NAMESPACE, NODE, POD, SECRET, CONFIG_MAP, CORE_SERVICE, EVENT, DEPLOYMENT, REPLICA_SET, LEASE, SERVICE,
    CONFIGURATION, REVISION, ROUTE, POD_AUTOSCALER, SERVERLESS_SERVICE, INGRESS, *OWN_KINDS,
)  # fmt: skip
"""Every kind that the embedded cluster stores; core Services only because `kubectl cluster-info` lists them."""

# Labels and annotations of Knative and Kubernetes that several packages read.
LABEL_SERVICE = "serving.knative.dev/service"
LABEL_CONFIGURATION = "serving.knative.dev/configuration"
LABEL_CONFIGURATION_GENERATION = "serving.knative.dev/configurationGeneration"
LABEL_REVISION = "serving.knative.dev/revision"
LABEL_REVISION_UID = "serving.knative.dev/revisionUID"
LABEL_ROUTE = "serving.knative.dev/route"
LABEL_TEMPLATE_HASH = "pod-template-hash"
LABEL_VISIBILITY = "networking.knative.dev/visibility"  # "cluster-local" hides a Route from the public gateway
ANNOTATION_CLASS = "autoscaling.knative.dev/class"
ANNOTATION_NO_GC = "serving.knative.dev/no-gc"  # "true" exempts a Revision from garbage collection
ANNOTATION_PORTS = "embedded.knodel.dev/ports"  # on a Pod: {"8080": 20004, …}, container port → real port on the node
NVIDIA_GPU = "nvidia.com/gpu"  # extended resource: whole GPUs of NVIDIA
ANNOTATION_DEVICES = "embedded.knodel.dev/devices"  # on a Pod: {"uuids": ["GPU-…"], "share": 1000}, the GPUs it has
DISRUPTION_TARGET = "DisruptionTarget"  # condition of a Pod that is deleted for the reason in it
GPU_LOST = "GPULost"  # reason of it, and of the Node's condition
ANNOTATION_GPU_FRACTION = "knodel.dev/gpu-fraction"  # on a Pod: "0.3", the part of a GPU that it requests
ANNOTATION_PROCESS = "embedded.knodel.dev/process"  # on a Pod: {"pid": …, "startTicks": …}, how a new kubelet adopts it


def name_of(obj: Object) -> str:
    """Return `metadata.name`."""
    return str(obj["metadata"]["name"])


def namespace_of(obj: Object) -> str:
    """Return `metadata.namespace`, empty for cluster-scoped kinds."""
    return str(obj["metadata"].get("namespace", ""))


def key_of(obj: Object) -> Key:
    """Return the `Key` of an object."""
    metadata = obj["metadata"]
    return Key(str(metadata.get("namespace", "")), str(metadata["name"]))


def uid_of(obj: Object) -> str:
    """Return `metadata.uid`, empty before the object is stored."""
    return str(obj["metadata"].get("uid", ""))


def labels_of(obj: Object) -> Mapping[str, str]:
    """Return `metadata.labels`, never None."""
    return obj["metadata"].get("labels") or {}


def annotations_of(obj: Object) -> Mapping[str, str]:
    """Return `metadata.annotations`, never None."""
    return obj["metadata"].get("annotations") or {}


def generation_of(obj: Object) -> int:
    """Return `metadata.generation`, 0 before the object is stored."""
    return int(obj["metadata"].get("generation", 0))


def version_of(obj: Object) -> str:
    """Return `metadata.resourceVersion`, empty before the object is stored."""
    return str(obj["metadata"].get("resourceVersion", ""))


def version_number(version: str) -> int:
    """Return a resourceVersion as a number, 0 for an empty or malformed one.

    The versions of one kind compare as numbers: Kubernetes 1.35 guarantees it (KEP-5504), and older releases do it.
    """
    return int(version) if version.isascii() and version.isdigit() else 0


def is_deleting(obj: Object) -> bool:
    """Return whether the object is being deleted: finalizers or a grace period retain it."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def owner_reference(kind: Kind, owner: Object) -> Object:
    """Return the controller ownerReference for a child of `owner`."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_of(obj: Object) -> Object | None:
    """Return the ownerReference with `controller: true`, or None."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return dict(reference)
    return None


def is_controlled_by(obj: Object, owner: Object) -> bool:
    """Return whether `owner` is the controller of `obj`, compared by uid."""
    reference = controller_of(obj)
    return reference is not None and reference["uid"] == uid_of(owner)


def condition_of(obj: Object, kind: str) -> Object | None:
    """Return the status condition of type `kind`, or None."""
    return next((dict(one) for one in conditions_of(obj) if one["type"] == kind), None)


def conditions_of(obj: Object) -> list[Object]:
    """Return `status.conditions` without malformed entries."""
    status = obj.get("status")
    listed = status.get("conditions") if isinstance(status, dict) else None
    return [one for one in listed if isinstance(one, dict) and "type" in one] if isinstance(listed, list) else []


def is_true(obj: Object, kind: str) -> bool:
    """Return whether the condition `kind` is True for the current generation.

    It is not when `observedGeneration` is older: then the status describes an earlier spec.
    """
    status = obj.get("status") or {}
    observed = status.get("observedGeneration")
    if observed is not None and int(observed) != generation_of(obj):
        return False
    condition = condition_of(obj, kind)
    return condition is not None and condition.get("status") == "True"


def with_condition(
    conditions: Iterable[Object], kind: str, status: str, now: datetime, reason: str = "", message: str = ""
) -> list[Object]:
    """Return a new condition list, sorted by type, in which `kind` has this status ("True", "False", "Unknown").

    `lastTransitionTime` changes only with the status (Kubernetes API conventions).
    """
    kept = [dict(condition) for condition in conditions if condition.get("type") != kind]
    former = next((condition for condition in conditions if condition.get("type") == kind), None)
    moved = former is None or former.get("status") != status
    fresh: Object = {
        "type": kind,
        "status": status,
        "lastTransitionTime": timestamp(now) if moved or former is None else former.get("lastTransitionTime"),
    }
    if reason:
        fresh["reason"] = reason
    if message:
        fresh["message"] = message
    return sorted([*kept, fresh], key=lambda condition: str(condition["type"]))


def timestamp(at: datetime) -> str:
    """Return a time in RFC 3339, in UTC and whole seconds, the format of Kubernetes."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> datetime:
    """Return the time that `timestamp` wrote; fractions of a second are accepted."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
