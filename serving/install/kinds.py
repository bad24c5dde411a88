"""The kinds in Knodel's manifests, in the order of application. Pure."""

from __future__ import annotations

from clusters.base.errors import KnodelError
from clusters.base.objects import CONFIG_MAP, DEPLOYMENT, NAMESPACE, Kind, Object, key_of

CRD = Kind(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False,
    short_names=("crd",),
)  # fmt: skip
CORE_SERVICE = Kind("", "v1", "Service", "services", short_names=("svc",))
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts", status=False, short_names=("sa",))
_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"

ORDER = (
    NAMESPACE,
    CRD,
    Kind(_ADMISSION, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", namespaced=False),
    Kind(
        _ADMISSION, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", namespaced=False,
        status=False,
    ),
    Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False, status=False),
    SERVICE_ACCOUNT,
    Kind(_RBAC, "v1", "ClusterRole", "clusterroles", namespaced=False, status=False),
    Kind(_RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False, status=False),
    Kind(_RBAC, "v1", "Role", "roles", status=False),
    Kind(_RBAC, "v1", "RoleBinding", "rolebindings", status=False),
    CONFIG_MAP,
    Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", status=False, short_names=("netpol",)),
    Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", short_names=("pdb",)),
    CORE_SERVICE,
    DEPLOYMENT,
)  # fmt: skip
"""Namespaces, definitions, rights and settings come before the workloads that need them."""

_RANK = {(kind.api_version, kind.kind): rank for rank, kind in enumerate(ORDER)}


class UnknownKind(KnodelError):
    """A manifest has an object of an unsupported kind."""


def kind_of(obj: Object) -> Kind:
    """Return the kind of an object in a manifest. Raises UnknownKind."""
    return ORDER[_rank(obj)]


def in_order(objects: list[Object]) -> list[Object]:
    """Return the objects in the order of application. Raises UnknownKind."""
    return sorted(objects, key=lambda obj: (_rank(obj), key_of(obj)))


def _rank(obj: Object) -> int:
    coordinates = (str(obj.get("apiVersion")), str(obj.get("kind")))
    if coordinates not in _RANK:
        known = ", ".join(kind.kind for kind in ORDER)
        raise UnknownKind(
            f"{coordinates[1]} ({coordinates[0]}) is not a kind that can be installed ({known}): apply it with kubectl"
        )
    return _RANK[coordinates]
