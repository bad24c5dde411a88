"""The files that the kubelet keeps for each Pod.

STATE/pods/UID/scratch/            working directory of the process (an emptyDir), removed with the Pod
STATE/pods/UID/volumes/NAME/       the keys of a mounted Secret or ConfigMap as files
STATE/pods/UID/termination-log     termination message, written by the process
STATE/pods/UID/run.json            record of the current process, written by the runtime that starts it
STATE/logs/NAMESPACE_NAME_UID/     CONTAINER.log; .log.1 … are rotated files, CONTAINER.previous.log is of the run
                                   before the last restart; pod.json has name and labels of the Pod; the file `ended`
                                   marks the logs of a deleted Pod, which `log_rotation` removes later
STATE/zygotes/KEY/                 socket, record and log of a zygote
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from clusters.base.identity import NOBODY, Identity, folder_id
from clusters.base.objects import Object, labels_of, name_of, namespace_of, uid_of
from clusters.base.removal import remove_files

PRIVATE: Final = 0o700  # mode of the folders, which hold models and requests
MAX_TERMINATION_MESSAGE: Final = 4096  # bytes; MaxContainerTerminationMessageLength of Kubernetes
POD_METADATA: Final = "pod.json"
ENDED: Final = "ended"
MAX_NAME: Final = 150  # characters of a Pod name in a folder name, because a file name has at most 255 bytes


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """A recorded process: in `run.json`, and without its ports in an annotation of the Pod.

    `zygote` is the key of the zygote that can report the exit status, empty for a process that was executed.
    `home` is the state folder, by device and inode.
    """

    identity: Identity
    zygote: str = ""
    ports: Mapping[str, int] = field(default_factory=dict)
    home: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the record as a JSON object."""
        record = self.identity.to_json() | {"ports": dict(self.ports), "home": self.home}
        return record | ({"zygote": self.zygote} if self.zygote else {})

    @classmethod
    def parse(cls, text: str) -> ContainerRecord | None:
        """Return the record in JSON text; None for invalid text, such as a file that a crash cut off."""
        try:
            record = json.loads(text)
            ports = {str(port): int(real) for port, real in (record.get("ports") or {}).items()}
            identity = Identity.parse(record)
            return cls(identity, str(record.get("zygote", "")), ports, str(record.get("home", "")))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


@dataclass(frozen=True, slots=True)
class PodLogMetadata:
    """The Pod of a folder with logs. `container` is the container that serves."""

    namespace: str
    name: str
    container: str
    labels: Mapping[str, str]


class Folders:
    """The paths below one state folder."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir.resolve()
        self.pods = self.state_dir / "pods"
        self.zygotes = self.state_dir / "zygotes"
        self.logs = self.state_dir / "logs"

    @property
    def home(self) -> str:
        """The state folder, by device and inode."""
        return folder_id(self.state_dir)

    def without_foreign(self, record: ContainerRecord) -> ContainerRecord:
        """Return the record, with `NOBODY` for a process of another state folder.

        A copied state folder contains records of the processes of the original.
        """
        return record if record.home == self.home else replace(record, identity=NOBODY)

    def prepare(self) -> None:
        """Create the missing folders."""
        for folder in (self.state_dir, self.pods, self.zygotes, self.logs):
            folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)

    def prepare_pod(self, pod: Object) -> None:
        """Create the folders of a Pod."""
        self.scratch(uid_of(pod)).mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        self.log(pod, "").parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        self._write_pod_metadata(pod)

    def remove_pod(self, pod: Object) -> None:
        """Remove the files of a Pod except its logs, which `log_rotation.remove_ended` limits in age and size."""
        shutil.rmtree(self.pods / uid_of(pod), ignore_errors=True)
        folder = self.log(pod, "").parent
        try:
            self._write_pod_metadata(pod)  # a claim of a warm-pool member changes its labels after the start
            (folder / ENDED).touch(mode=0o600)
        except (OSError, LookupError, TypeError, AttributeError):  # it never ran, is malformed, or the disk is full
            shutil.rmtree(folder, ignore_errors=True)

    def _write_pod_metadata(self, pod: Object) -> None:
        container = str(pod["spec"]["containers"][0]["name"])
        metadata = PodLogMetadata(namespace_of(pod), name_of(pod), container, dict(labels_of(pod)))
        write_json(self.log(pod, "").parent / POD_METADATA, asdict(metadata))

    def keep_previous_log(self, pod: Object, container: str) -> None:
        """Rename the log of a container's last run before the container is restarted."""
        path = self.log(pod, container)
        if path.exists():
            path.replace(previous_log(path))

    def remove_all_but(self, uids: Collection[str]) -> None:
        """Remove the files of all Pods but these, and mark their logs as those of deleted Pods."""
        for folder in self.pods.iterdir():
            if folder.name not in uids:
                shutil.rmtree(folder, ignore_errors=True)
        for folder in self.logs.iterdir():
            if folder.name.rpartition("_")[2] not in uids and not has_ended(folder):
                (folder / ENDED).touch(mode=0o600)

    def log(self, pod: Object, container: str) -> Path:
        """Return the log file of a container."""
        folder = f"{namespace_of(pod)}_{name_of(pod)[:MAX_NAME]}_{uid_of(pod)}"
        return self.logs / folder / f"{container}.log"

    def scratch(self, uid: str) -> Path:
        """Return the working directory of a Pod's process."""
        return self.pods / uid / "scratch"

    def volumes(self, uid: str) -> Path:
        """Return the folder of the Pod's mounted volumes."""
        return self.pods / uid / "volumes"

    def termination_log(self, uid: str) -> Path:
        """Return the file to which the process writes its termination message."""
        return self.pods / uid / "termination-log"

    def record_file(self, uid: str) -> Path:
        """Return the file with the record of the Pod's process."""
        return self.pods / uid / "run.json"

    def read_record(self, uid: str) -> ContainerRecord | None:
        """Return the record of the Pod's process, None when there is none."""
        try:
            record = ContainerRecord.parse(self.record_file(uid).read_text())
        except FileNotFoundError:
            return None
        return None if record is None else self.without_foreign(record)

    def read_records(self) -> dict[str, ContainerRecord]:
        """Return the records of all Pods that were started here and not removed, by uid."""
        records = {folder.name: self.read_record(folder.name) for folder in self.pods.glob("*") if folder.is_dir()}
        return {uid: record for uid, record in records.items() if record is not None}

    def termination_message(self, uid: str) -> str:
        """Return the termination message of the Pod's process, empty when it wrote none."""
        try:
            with self.termination_log(uid).open("rb") as file:
                return file.read(MAX_TERMINATION_MESSAGE).decode(errors="replace").strip()
        except FileNotFoundError:
            return ""

    def remove_record(self, uid: str) -> None:
        """Remove the record and the termination message of the Pod's last process. A read-only disk keeps them."""
        remove_files(self.termination_log(uid), self.record_file(uid))


def previous_log(path: Path) -> Path:
    """Return the log file of a container's previous run, given the log file `path` of the current one."""
    return path.with_name(f"{path.stem}.previous.log")


def has_ended(folder: Path) -> bool:
    """Return whether the logs in the folder are those of a deleted Pod."""
    return (folder / ENDED).exists()


def read_pod_metadata(folder: Path) -> PodLogMetadata | None:
    """Return the Pod of a folder with logs, None when it is not recorded."""
    try:
        found = json.loads((folder / POD_METADATA).read_text())
        labels = {str(name): str(value) for name, value in found["labels"].items()}
        return PodLogMetadata(str(found["namespace"]), str(found["name"]), str(found["container"]), labels)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def log_path(state_dir: Path, pod: Object) -> Path:
    """Return the log file of a Pod's container."""
    return Folders(state_dir).log(pod, str(pod["spec"]["containers"][0]["name"]))


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write a small JSON file atomically. It is not synced to disk because it is only valid until the next boot."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(record))
    fresh.replace(path)
