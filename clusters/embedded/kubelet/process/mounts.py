"""Volumes of a node without mounts: a Secret or ConfigMap becomes files in a folder of the Pod's, and variables lead
there.

A container of Kubernetes finds a volume at its `mountPath`. A process of this machine cannot: so where the value of a
declared variable is a `mountPath` of one, or lies below one, the folder's own path takes its place. The files are
written anew at each start of the process.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from clusters.base.objects import Object, namespace_of
from clusters.embedded.kubelet.process.environment import ReadSecret
from clusters.embedded.kubelet.process.errors import BadContainerConfig
from clusters.embedded.kubelet.process.folders import PRIVATE
from clusters.embedded.store.secrets import is_key

READ_ONLY: Final = 0o400  # of the files, which hold credentials

Places = Mapping[str, Path]
"""`mountPath` → the folder that stands for it."""


async def mount_files(
    pod: Object, container: Object, folder: Path, read_secret: ReadSecret, read_config_map: ReadSecret
) -> Places:
    """Write the Secrets and ConfigMaps that the container mounts below `folder`.

    Raises BadContainerConfig, Unavailable, OSError.
    """
    volumes = {str(one.get("name")): one for one in pod["spec"].get("volumes") or ()}
    places = {}
    for mount in container.get("volumeMounts") or ():
        name = str(mount.get("name"))
        volume = volumes.get(name) or {}
        for field, named, read in (("secret", "secretName", read_secret), ("configMap", "name", read_config_map)):
            source = volume.get(field)
            if source is not None:
                values = await _values(field, str(source.get(named, "")), pod, source, read)
                _write_files(folder / name, values)
                places[str(mount["mountPath"])] = folder / name
    return places


def lead_to(places: Places, env: Mapping[str, str]) -> dict[str, str]:
    """The variables, with folders of this machine in the place of mount paths."""
    return {name: _led(places, value) for name, value in env.items()}


def _led(places: Places, value: str) -> str:
    for path, folder in places.items():
        if value == path or value.startswith(f"{path.rstrip('/')}/"):
            return f"{folder}{value[len(path.rstrip('/')) :]}"
    return value


async def _values(field: str, name: str, pod: Object, source: Object, read: ReadSecret) -> Mapping[str, bytes]:
    namespace = namespace_of(pod)
    values = await read(namespace, name)
    if values is None and not source.get("optional"):
        raise BadContainerConfig(
            f"volume: {field} {name!r} does not exist in namespace {namespace!r}: create it, or correct the name"
        )
    if wrong := [key for key in values or {} if not is_key(key)]:
        raise BadContainerConfig(f"volume: {field} {name!r} has the key {wrong[0]!r}, which is no name of a file")
    return values or {}


def _write_files(folder: Path, values: Mapping[str, bytes]) -> None:
    """The folder with these files and no others."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=PRIVATE, parents=True)
    for key, value in values.items():
        with os.fdopen(os.open(folder / key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, READ_ONLY), "wb") as file:
            file.write(value)
