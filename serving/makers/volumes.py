"""What a replica finds in its file system: its scratch folder, credentials of a storage, a volume claim. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from autoscaler.warmpool.claims.marks import DIGESTS_VARIABLE, DIGESTS_VOLUME
from clusters.base.objects import Object

CREDENTIALS_PATH: Final = "/etc/knodel/credentials"
CREDENTIALS: Final = "KNODEL_CREDENTIALS"
"""Variable by which the server learns where its credentials are (`serving.storage.transfer.credentials`)."""
DIGESTS_PATH: Final = "/etc/knodel/digests"
CLAIMS_PATH: Final = "/mnt/pvc"
"""Where the server looks for the claims of `pvc://CLAIM/PATH`, each at its name (`serving.storage.sources.local`)."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A volume of a Pod with its place in the container; `variable`, unless empty, tells the place to the server."""

    name: str
    path: str
    source: Object
    read_only: bool
    variable: str = ""

    @property
    def volume(self) -> Object:
        """Of the Pod."""
        return {"name": self.name, **self.source}

    @property
    def mount(self) -> Object:
        """Of the container."""
        return {"name": self.name, "mountPath": self.path} | ({"readOnly": True} if self.read_only else {})


def scratch() -> Mount:
    """The one writable folder: the root file system is read-only."""
    return Mount("scratch", "/tmp", {"emptyDir": {}}, read_only=False)  # noqa: S108 - a volume of the Pod's own


def credentials(secret: str) -> Mount:
    """The keys of a Secret as files."""
    return Mount("credentials", CREDENTIALS_PATH, {"secret": {"secretName": secret}}, True, CREDENTIALS)


def digests(config_map: str) -> Mount:
    """The digests that revisions loaded first, each in a file of the revision's name; absent before the first one."""
    source = {"configMap": {"name": config_map, "optional": True}}
    return Mount(DIGESTS_VOLUME, DIGESTS_PATH, source, True, DIGESTS_VARIABLE)


def claim(name: str) -> Mount:
    """A PersistentVolumeClaim, which Knative lets be read only."""
    source = {"persistentVolumeClaim": {"claimName": name, "readOnly": True}}
    return Mount("claim", f"{CLAIMS_PATH}/{name}", source, read_only=True)
