"""Volumes of a node without mounts: Secrets and ConfigMaps are written as files into a folder of the Pod.

A container of Kubernetes finds a volume at its `mountPath`, which a process of this machine cannot. So a declared
variable whose value is a `mountPath`, or a path below one, gets the path of the folder instead. The files are
rewritten at each start of the process, those of a ConfigMap also when it changes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from clusters.base.objects import Object, namespace_of
from clusters.embedded.kubelet.process.environment import ReadSecret
from clusters.embedded.kubelet.process.errors import CreateContainerConfigError
from clusters.embedded.kubelet.process.folders import PRIVATE
from clusters.embedded.store.secrets import is_key

READ_ONLY: Final = 0o400  # mode of the files, which contain credentials

MountedFolders = Mapping[str, Path]
"""Map each `mountPath` to the folder with the volume's files."""


async def mount_volumes(
    pod: Object, container: Object, folder: Path, read_secret: ReadSecret, read_config_map: ReadSecret
) -> MountedFolders:
    """Write the Secrets and ConfigMaps that the container mounts below `folder`, and return where they are.

    Raises CreateContainerConfigError, Unavailable, OSError.
    """
    volumes = {str(one.get("name")): one for one in pod["spec"].get("volumes") or ()}
    mounted = {}
    for mount in container.get("volumeMounts") or ():
        name = str(mount.get("name"))
        volume = volumes.get(name) or {}
        for field, named, read in (("secret", "secretName", read_secret), ("configMap", "name", read_config_map)):
            source = volume.get(field)
            if source is not None:
                values = await _read_values(field, str(source.get(named, "")), pod, source, read)
                _write_files(folder / name, values)
                mounted[str(mount["mountPath"])] = folder / name
    return mounted


def update_config_map(pod: Object, folder: Path, name: str, values: Mapping[str, bytes]) -> None:
    """Replace the files of a changed ConfigMap in the mounted volumes of a Pod, each at once. Raises OSError."""
    for volume in pod["spec"].get("volumes") or ():
        mounted = folder / str(volume.get("name"))
        if (volume.get("configMap") or {}).get("name") != name or not mounted.is_dir():
            continue
        for path in mounted.iterdir():
            if path.name not in values:
                path.unlink()
        for key in filter(is_key, values):
            new = folder / f"{mounted.name}.new"
            new.unlink(missing_ok=True)
            _write_file(new, values[key])
            new.replace(mounted / key)


def replace_mount_paths(mounted: MountedFolders, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with the mount paths at the start of their values replaced by the folders."""

    def replace(value: str) -> str:
        for path, folder in mounted.items():
            if value == path or value.startswith(f"{path.rstrip('/')}/"):
                return f"{folder}{value[len(path.rstrip('/')) :]}"
        return value

    return {name: replace(value) for name, value in env.items()}


async def _read_values(field: str, name: str, pod: Object, source: Object, read: ReadSecret) -> Mapping[str, bytes]:
    namespace = namespace_of(pod)
    values = await read(namespace, name)
    if values is None and not source.get("optional"):
        raise CreateContainerConfigError(
            f"volume: {field} {name!r} does not exist in namespace {namespace!r}: create it, or correct the name"
        )
    if wrong := [key for key in values or {} if not is_key(key)]:
        raise CreateContainerConfigError(f"volume: {field} {name!r}: the key {wrong[0]!r} is not a valid file name")
    return values or {}


def _write_files(folder: Path, values: Mapping[str, bytes]) -> None:
    """Replace the folder by one with exactly these files."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=PRIVATE, parents=True)
    for key, value in values.items():
        _write_file(folder / key, value)


def _write_file(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, READ_ONLY), "wb") as file:
        file.write(content)
