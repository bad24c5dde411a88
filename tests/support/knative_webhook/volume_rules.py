"""Validate a revision's volumes: their sources and files, and that each is mounted.

Source: knative/serving `pkg/apis/serving/k8s_validation.go` (`ValidateVolumes` and its functions) and `fieldmask.go`.
Knative's schema allows unknown fields inside a source, and so do these rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clusters.base.names import dns_label_fault
from tests.support.knative_webhook.checks import Faults

EMPTY_DIR = "kubernetes.podspec-volumes-emptydir"
PVC = "kubernetes.podspec-persistent-volume-claim"
PVC_WRITE = "kubernetes.podspec-persistent-volume-write"

SOURCES = ("secret", "configMap", "projected")
FLAGS = {
    "emptyDir": EMPTY_DIR,
    "persistentVolumeClaim": PVC,
    "hostPath": "kubernetes.podspec-volumes-hostpath",
    "csi": "kubernetes.podspec-volumes-csi",
    "ephemeral": "kubernetes.podspec-volumes-ephemeral",
    "image": "kubernetes.podspec-volumes-image",
}
_MEDIA = ("", "Memory")
_NEEDED_BY_PROJECTION = {"secret": "name", "configMap": "name", "serviceAccountToken": "path", "downwardAPI": ""}


def check_volumes(
    faults: Faults, path: str, value: object, containers: Sequence[Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    """Return the volumes by name, all of which `containers` must mount."""
    lists = [container.get("volumeMounts") for container in containers]
    mounts = [mount for mounts in lists if isinstance(mounts, list) for mount in mounts]
    mounted = {mount["name"] for mount in mounts if isinstance(mount, dict) and isinstance(mount.get("name"), str)}
    volumes: dict[str, Mapping[str, Any]] = {}
    for where, item in faults.items(path, value):
        volume = faults.map(where, item)
        name = faults.string(f"{where}.name", volume.get("name"))
        if dns_label_fault(name):
            faults.add(f"{where}.name", dns_label_fault(name))
        elif name in volumes:
            faults.add(f"{where}.name", f'duplicate volume name "{name}"')
        elif name not in mounted:
            faults.add(f"{where}.name", f'volume with name "{name}" not mounted')
        volumes[name] = volume
        _check_source(faults, where, volume)
    return volumes


def _check_source(faults: Faults, path: str, volume: Mapping[str, Any]) -> None:
    faults.known_fields(path, volume, ("name", *SOURCES), flagged=FLAGS)
    faults.one_of(path, volume, (*SOURCES, *FLAGS))
    for field in ("secret", "configMap"):
        source = faults.map(f"{path}.{field}", volume.get(field))
        _check_files(faults, f"{path}.{field}.items", source.get("items"))
    projected = faults.map(f"{path}.projected", volume.get("projected"))
    for where, item in faults.items(f"{path}.projected.sources", projected.get("sources")):
        _check_projection(faults, where, faults.map(where, item))
    _check_empty_dir(faults, f"{path}.emptyDir", faults.map(f"{path}.emptyDir", volume.get("emptyDir")))
    _check_claim(faults, path, volume)


def _check_files(faults: Faults, path: str, value: object) -> None:
    for where, item in faults.items(path, value):
        file = faults.map(where, item)
        for field in ("key", "path"):
            _require(faults, where, file, field)


def _check_projection(faults: Faults, path: str, projection: Mapping[str, Any]) -> None:
    faults.one_of(path, projection, tuple(_NEEDED_BY_PROJECTION))
    for field, needed in _NEEDED_BY_PROJECTION.items():
        if projection.get(field) is None:
            continue
        source = faults.map(f"{path}.{field}", projection[field])
        if needed:
            _require(faults, f"{path}.{field}", source, needed)
        if needed == "name":
            _check_files(faults, f"{path}.{field}.items", source.get("items"))


def _check_empty_dir(faults: Faults, path: str, source: Mapping[str, Any]) -> None:
    medium = faults.string(f"{path}.medium", source.get("medium"))
    if medium not in _MEDIA:
        faults.add(f"{path}.medium", f"invalid value: {medium!r}: only Memory or an empty value is allowed")
    limit = source.get("sizeLimit")
    if limit is not None:
        faults.quantities(path, {"sizeLimit": limit})
        if str(limit).startswith("-"):
            faults.add(f"{path}.sizeLimit", f"invalid value: {limit!r}: it must not be negative")


def _check_claim(faults: Faults, path: str, volume: Mapping[str, Any]) -> None:
    if volume.get("persistentVolumeClaim") is None or PVC not in faults.features:
        return
    claim = faults.map(f"{path}.persistentVolumeClaim", volume["persistentVolumeClaim"])
    if claim.get("readOnly") is not True and PVC_WRITE not in faults.features:
        rule = f"Knative's feature {PVC_WRITE} is off (config-features)"
        faults.add(f"{path}.persistentVolumeClaim.readOnly", f"must be true: {rule}")


def _require(faults: Faults, path: str, obj: Mapping[str, Any], field: str) -> None:
    if not faults.string(f"{path}.{field}", obj.get(field)):
        faults.add(f"{path}.{field}", "missing field: it is required")
