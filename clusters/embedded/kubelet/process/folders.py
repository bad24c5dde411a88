"""Where the kubelet keeps what belongs to a Pod on disk.

STATE/pods/UID/scratch/            the process's working directory (an emptyDir): goes with the Pod
STATE/pods/UID/volumes/NAME/       the keys of a Secret as files
STATE/pods/UID/termination-log     why the process ended, in its own words
STATE/pods/UID/run.json            the process that was started, written by whoever starts it
STATE/logs/NAMESPACE_NAME_UID/CONTAINER.log, .log.1 …, CONTAINER.previous.log of the run before a restart
STATE/logs/NAMESPACE_NAME_UID/pod.json, ended   name and labels of the Pod; it is gone, `logs` removes the folder later
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

PRIVATE: Final = 0o700  # models and requests pass through these folders
LARGEST_MESSAGE: Final = 4096  # bytes; Kubernetes: MaxContainerTerminationMessageLength
DESCRIPTION: Final = "pod.json"
ENDED: Final = "ended"
LONGEST_NAME: Final = 150  # characters of a Pod name in a folder name: a file name has at most 255 bytes


@dataclass(frozen=True, slots=True)
class Run:
    """A process as recorded: in `run.json`, and without its ports in the annotation of the Pod.

    `zygote` (a key) can tell how it ended; empty when it was started without one. `home` is the state folder, by device
    and inode.
    """

    identity: Identity
    zygote: str = ""
    ports: Mapping[str, int] = field(default_factory=dict)
    home: str = ""

    def to_json(self) -> dict[str, Any]:
        """As recorded."""
        record = self.identity.to_json() | {"ports": dict(self.ports), "home": self.home}
        return record | ({"zygote": self.zygote} if self.zygote else {})

    @classmethod
    def parse(cls, text: str) -> Run | None:
        """The inverse; None for what is no such record (a file cut off by a crash)."""
        try:
            record = json.loads(text)
            ports = {str(port): int(real) for port, real in (record.get("ports") or {}).items()}
            identity = Identity.parse(record)
            return cls(identity, str(record.get("zygote", "")), ports, str(record.get("home", "")))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


@dataclass(frozen=True, slots=True)
class Description:
    """The Pod whose logs a folder has; `container` is the one that serves."""

    namespace: str
    name: str
    container: str
    labels: Mapping[str, str]


class Folders:
    """The paths of one state folder."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir.resolve()
        self.pods = self.state_dir / "pods"
        self.zygotes = self.state_dir / "zygotes"
        self.logs = self.state_dir / "logs"

    @property
    def home(self) -> str:
        """The state folder, by device and inode."""
        return folder_id(self.state_dir)

    def own(self, run: Run) -> Run:
        """Return the run, with `NOBODY` for the process of another state folder, of which this one is a copy."""
        return run if run.home == self.home else replace(run, identity=NOBODY)

    def prepare(self) -> None:
        """Make the folders that are absent."""
        for folder in (self.state_dir, self.pods, self.zygotes, self.logs):
            folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)

    def prepare_pod(self, pod: Object) -> None:
        """Make the folders of a Pod."""
        self.scratch(uid_of(pod)).mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        self.log(pod, "").parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        self._describe(pod)

    def remove_pod(self, pod: Object) -> None:
        """Remove all that belongs to a Pod but its logs, which `logs.remove_ended` bounds in age and size."""
        shutil.rmtree(self.pods / uid_of(pod), ignore_errors=True)
        folder = self.log(pod, "").parent
        try:
            self._describe(pod)  # its labels may have changed since it started: a claimed pool member's do
            (folder / ENDED).touch(mode=0o600)
        except (OSError, LookupError, TypeError, AttributeError):  # it never ran, is malformed, or the disk is full
            shutil.rmtree(folder, ignore_errors=True)

    def _describe(self, pod: Object) -> None:
        folder = self.log(pod, "").parent
        container = str(pod["spec"]["containers"][0]["name"])
        known = Description(namespace_of(pod), name_of(pod), container, dict(labels_of(pod)))
        write_record(folder / DESCRIPTION, asdict(known))

    def keep_previous_log(self, pod: Object, container: str) -> None:
        """Set the log of a container's former run aside, before it runs again."""
        path = self.log(pod, container)
        if path.exists():
            path.replace(previous_log(path))

    def remove_all_but(self, uids: Collection[str]) -> None:
        """Remove what belongs to other Pods than these, and mark their logs as those of ended Pods."""
        for folder in self.pods.iterdir():
            if folder.name not in uids:
                shutil.rmtree(folder, ignore_errors=True)
        for folder in self.logs.iterdir():
            if folder.name.rpartition("_")[2] not in uids and not has_ended(folder):
                (folder / ENDED).touch(mode=0o600)

    def log(self, pod: Object, container: str) -> Path:
        """The log file of a container."""
        folder = f"{namespace_of(pod)}_{name_of(pod)[:LONGEST_NAME]}_{uid_of(pod)}"
        return self.logs / folder / f"{container}.log"

    def scratch(self, uid: str) -> Path:
        """The working directory of a Pod's process."""
        return self.pods / uid / "scratch"

    def volumes(self, uid: str) -> Path:
        """Where the Pod's volumes are, but for its scratch folder."""
        return self.pods / uid / "volumes"

    def termination_log(self, uid: str) -> Path:
        """Where the process says why it ends."""
        return self.pods / uid / "termination-log"

    def run_file(self, uid: str) -> Path:
        """Where the starter of the process records it."""
        return self.pods / uid / "run.json"

    def read_run(self, uid: str) -> Run | None:
        """The recorded process, if any."""
        try:
            run = Run.parse(self.run_file(uid).read_text())
        except FileNotFoundError:
            return None
        return None if run is None else self.own(run)

    def runs(self) -> dict[str, Run]:
        """Pod uid → recorded process, for all Pods ever started here and not removed."""
        found = {folder.name: self.read_run(folder.name) for folder in self.pods.glob("*") if folder.is_dir()}
        return {uid: run for uid, run in found.items() if run is not None}

    def termination_message(self, uid: str) -> str:
        """The last words of the Pod's process; empty when it wrote none."""
        try:
            with self.termination_log(uid).open("rb") as file:
                return file.read(LARGEST_MESSAGE).decode(errors="replace").strip()
        except FileNotFoundError:
            return ""

    def forget_last_run(self, uid: str) -> None:
        """Remove the record and the message of the former process of the Pod; a read-only disk keeps them."""
        remove_files(self.termination_log(uid), self.run_file(uid))


def previous_log(path: Path) -> Path:
    """Return the file with the log of the former run of the container whose present log is `path`."""
    return path.with_name(f"{path.stem}.previous.log")


def has_ended(folder: Path) -> bool:
    """Return whether the Pod whose logs are in the folder is gone."""
    return (folder / ENDED).exists()


def read_description(folder: Path) -> Description | None:
    """Return the Pod whose logs are in the folder, None when it is not known."""
    try:
        found = json.loads((folder / DESCRIPTION).read_text())
        labels = {str(name): str(value) for name, value in found["labels"].items()}
        return Description(str(found["namespace"]), str(found["name"]), str(found["container"]), labels)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def log_path(state_dir: Path, pod: Object, container: str = "") -> Path:
    """The log file of a Pod's container (the first one unless named), for those who show logs."""
    return Folders(state_dir).log(pod, container or str(pod["spec"]["containers"][0]["name"]))


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write a small JSON file, whole or not at all. Not synced: it is about this boot only."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(record))
    fresh.replace(path)
