"""Make the volumes of a replica: scratch folder, credentials of a storage, digests, adapters, volume claims. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from autoscaler.warmpool.claims.marks import DIGESTS_VARIABLE, DIGESTS_VOLUME
from clusters.base.objects import Object
from serving.engines.base.group import GROUP_VARIABLE
from serving.engines.base.llm_arguments import ADAPTERS_VARIABLE

CREDENTIALS_PATH: Final = "/etc/knodel/credentials"
CREDENTIALS: Final = "KNODEL_CREDENTIALS"
"""Environment variable with the folder of the credentials (`serving.storage.transfer.credentials`)."""
DIGESTS_PATH: Final = "/etc/knodel/digests"
ADAPTERS_PATH: Final = "/etc/knodel/adapters"
GROUP_PATH: Final = "/etc/knodel/group"
CLAIMS_PATH: Final = "/mnt/pvc"
"""Folder with the claims of `pvc://CLAIM/PATH`, each in a folder of its name (`serving.storage.sources.local`)."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A volume of a Pod, mounted at `path`. `variable`, unless empty, is the environment variable with the path."""

    name: str
    path: str
    source: Object
    read_only: bool
    variable: str = ""

    @property
    def volume(self) -> Object:
        """Return the entry of the Pod's `volumes`."""
        return {"name": self.name, **self.source}

    @property
    def mount(self) -> Object:
        """Return the entry of the container's `volumeMounts`."""
        return {"name": self.name, "mountPath": self.path} | ({"readOnly": True} if self.read_only else {})


def scratch() -> Mount:
    """Return the only writable folder: the root file system is read-only."""
    return Mount("scratch", "/tmp", {"emptyDir": {}}, read_only=False)  # noqa: S108 - a volume of the Pod


def credentials(secret: str) -> Mount:
    """Return the keys of a Secret as files."""
    return Mount("credentials", CREDENTIALS_PATH, {"secret": {"secretName": secret}}, True, CREDENTIALS)


def digests(config_map: str) -> Mount:
    """Return the digests that revisions loaded first, each in a file of the revision's name; empty at first."""
    source = {"configMap": {"name": config_map, "optional": True}}
    return Mount(DIGESTS_VOLUME, DIGESTS_PATH, source, True, DIGESTS_VARIABLE)


def adapters(config_map: str) -> Mount:
    """Return the list of adapters, which changes while a replica runs."""
    return Mount("adapters", ADAPTERS_PATH, {"configMap": {"name": config_map}}, True, ADAPTERS_VARIABLE)


def group_token(secret: str) -> Mount:
    """Return the token of the Model's groups as a file."""
    return Mount("group", GROUP_PATH, {"secret": {"secretName": secret}}, True, GROUP_VARIABLE)


def shared_memory() -> Mount:
    """Return memory that processes share, which counts as the container's: its own /dev/shm has only 64 MiB."""
    memory = {"emptyDir": {"medium": "Memory"}}
    return Mount("shared-memory", "/dev/shm", memory, read_only=False)  # noqa: S108 - a volume of its own


def claim(name: str, number: int = 1) -> Mount:
    """Return a PersistentVolumeClaim, of several the one with this number. Knative allows it only read-only."""
    source = {"persistentVolumeClaim": {"claimName": name, "readOnly": True}}
    return Mount("claim" if number == 1 else f"claim-{number}", f"{CLAIMS_PATH}/{name}", source, read_only=True)
