"""The discovery API of Kubernetes: version, groups and resources. Pure."""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterable, Iterator

from clusters.base.objects import (
    CONFIGURATION,
    CORE_SERVICE,
    DEPLOYMENT,
    INGRESS,
    OWN_KINDS,
    POD,
    POD_AUTOSCALER,
    REPLICA_SET,
    REVISION,
    ROUTE,
    SERVERLESS_SERVICE,
    SERVICE,
    Kind,
    Object,
)
from serving.crds.definition import CATEGORIES

GO_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Go's names of processors, which Kubernetes uses, by the machine names of Linux."""
READ_VERBS = ("get", "list", "watch")
WRITE_VERBS = ("create", "delete", "patch", "update")
CATEGORIES_OF = {
    **dict.fromkeys((POD, CORE_SERVICE, DEPLOYMENT, REPLICA_SET), ("all",)),
    **dict.fromkeys((SERVICE, CONFIGURATION, REVISION, ROUTE), ("all", "knative", "serving")),
    POD_AUTOSCALER: ("knative-internal", "autoscaling"),
    **dict.fromkeys((SERVERLESS_SERVICE, INGRESS), ("knative-internal", "networking")),
    **dict.fromkeys(OWN_KINDS, CATEGORIES),
}
"""Categories of kinds, for example for `kubectl get all`: those of Kubernetes, Knative and Knodel."""


def version_info(version: str) -> Object:
    """Return `/version` with all fields of `version.Info`, because generated clients require each of them."""
    machine = platform.machine()
    return {
        "major": "1",
        "minor": "35",  # the version of the served API; kubectl compares it with its own
        "gitVersion": f"v1.35.0+knodel.{version}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",  # Kubernetes' value for a build without a date
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{platform.system().lower()}/{GO_MACHINES.get(machine, machine)}",
    }


def core_versions() -> Object:
    """Return `/api`."""
    return {"kind": "APIVersions", "versions": ["v1"]}


def group_list(kinds: Iterable[Kind]) -> Object:
    """Return `/apis`."""
    versions: dict[str, list[str]] = {}
    for kind in kinds:
        known = versions.setdefault(kind.group, [])
        if kind.group and kind.version not in known:
            known.append(kind.version)
    groups = [_group(name, versions[name]) for name in sorted(versions) if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(name: str, kinds: Iterable[Kind]) -> Object | None:
    """Return `/apis/GROUP`, or None if the group is unknown."""
    versions = sorted({kind.version for kind in kinds if kind.group == name})
    if not versions:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


def resource_list(group: str, version: str, kinds: Iterable[Kind], writable: Collection[Kind]) -> Object | None:
    """Return `/apis/GROUP/VERSION` or `/api/v1`, or None if it is unknown."""
    own = [kind for kind in kinds if (kind.group, kind.version) == (group, version)]
    if not own:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": own[0].api_version,
        "resources": [entry for kind in own for entry in _resources(kind, kind in writable)],
    }


def _group(name: str, versions: list[str]) -> Object:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def _resources(kind: Kind, writable: bool) -> Iterator[Object]:
    """Yield the resource of a kind and its subresources, which are read-only."""
    named = {"namespaced": kind.namespaced, "kind": kind.kind}
    yield {
        "name": kind.plural,
        "singularName": kind.kind.lower(),
        **named,
        "shortNames": list(kind.short_names),
        "categories": list(CATEGORIES_OF.get(kind, ())),
        "verbs": sorted((*READ_VERBS, *(WRITE_VERBS if writable else ()))),
    }
    for subresource, exists in (("status", kind.status), ("log", kind == POD)):
        if exists:
            yield {"name": f"{kind.plural}/{subresource}", "singularName": "", **named, "verbs": ["get"]}
