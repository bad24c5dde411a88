"""What the API serves, in the words of Kubernetes' discovery: groups, versions, resources."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from clusters.objects import Kind, Object

READ_VERBS = ("get", "list", "watch")
WRITE_VERBS = ("create", "delete", "patch")


def core_versions() -> Object:
    """`/api`."""
    return {"kind": "APIVersions", "versions": ["v1"]}


def group_list(kinds: Iterable[Kind]) -> Object:
    """`/apis`."""
    versions: dict[str, list[str]] = {}
    for kind in kinds:
        known = versions.setdefault(kind.group, [])
        if kind.group and kind.version not in known:
            known.append(kind.version)
    groups = [_group(name, versions[name]) for name in sorted(versions) if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(name: str, kinds: Iterable[Kind]) -> Object | None:
    """`/apis/GROUP`, None when unknown."""
    versions = sorted({kind.version for kind in kinds if kind.group == name})
    if not versions:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


def resource_list(group: str, version: str, kinds: Iterable[Kind], writable: Collection[Kind]) -> Object | None:
    """`/apis/GROUP/VERSION` or `/api/v1`, None when unknown."""
    own = [kind for kind in kinds if (kind.group, kind.version) == (group, version)]
    if not own:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": own[0].api_version,
        "resources": [_resource(kind, kind in writable) for kind in own],
    }


def _group(name: str, versions: list[str]) -> Object:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def _resource(kind: Kind, writable: bool) -> Object:
    return {
        "name": kind.plural,
        "singularName": kind.kind.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "shortNames": list(kind.short_names),
        "verbs": [*READ_VERBS, *(WRITE_VERBS if writable else ())],
    }
