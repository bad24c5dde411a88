"""Find the processes of a state folder by the variables in their environment.

`knodel doctor`, `knodel down` and the kubelet use it. A copy of a state folder does not own the processes of the
original.

A process that was forked from a zygote has the zygote's environment in /proc, so it is identified by its record. The
children of a Pod's process are identified by their session, or, like the engine of a language model, by the parent of
the process that leads their session.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clusters.base.identity import (
    PROC,
    Identity,
    identify,
    is_running,
    kill_group,
    parent_of,
    session_of,
    working_folder,
)
from clusters.embedded.kubelet.process.environment import POD_UID, PROCESS_HOME, PROCESS_OF, PROCESS_ROLE
from clusters.embedded.kubelet.process.folders import ContainerRecord, Folders
from clusters.embedded.kubelet.process.zygote import RECORD_NAME

KUBELET_ROLES: Final = ("pod", "zygote")  # roles of the processes that the kubelet starts
POLL_INTERVAL: Final = 0.02  # s between checks whether processes have ended


@dataclass(frozen=True, slots=True)
class Leftover:
    """A running process of a state folder. `pod` is the uid of its Pod, empty when it is not known."""

    identity: Identity
    role: str
    command: str
    pod: str = ""

    def __str__(self) -> str:
        return f"{self.role} process {self.identity.pid} ({self.command})"


def find_leftovers(state_dir: Path) -> list[Leftover]:
    """Return all running processes of this state folder except the calling one."""
    folders = Folders(state_dir)
    pods = {record.identity: uid for uid, record in folders.read_records().items()}
    return list(_scan(folders, pods))


def end_leftovers(leftovers: Collection[Leftover], grace: float) -> list[Leftover]:
    """Send SIGTERM, and SIGKILL after `grace` seconds. Blocks, and returns the processes that still run."""
    for leftover in leftovers:
        _signal(leftover, signal.SIGTERM)
    running = _wait(leftovers, grace)
    for leftover in running:
        _signal(leftover, signal.SIGKILL)
    return _wait(running, grace)


def kill_orphans(folders: Folders, pods: Collection[str]) -> list[Leftover]:
    """Kill the processes that a kubelet started and that belong to none of these Pods (uids). Zygotes continue.

    Returns the killed processes.
    """
    records = folders.read_records()
    owners = {record.identity.pid for uid, record in records.items() if uid in pods and is_running(record.identity)}
    zygotes = set()
    for path in folders.zygotes.glob(f"*/{RECORD_NAME}"):
        record = ContainerRecord.parse(path.read_text())
        if record is not None and is_running(folders.without_foreign(record).identity):
            zygotes.add(record.identity.pid)
    orphans = [
        leftover
        for leftover in _scan(folders, {record.identity: uid for uid, record in records.items()})
        if leftover.role in KUBELET_ROLES
        and session_of(leftover.identity.pid) not in zygotes
        and not _descends(leftover.identity.pid, owners)
    ]
    for orphan in orphans:
        _signal(orphan, signal.SIGKILL)
    return orphans


def _descends(pid: int, owners: Collection[int]) -> bool:
    """Return whether the process is in the session of an owner, or in one that a process of such a session began."""
    while session := session_of(pid):
        if session in owners:
            return True
        pid = parent_of(session)
    return False


def _scan(folders: Folders, pods: Mapping[Identity, str]) -> Iterator[Leftover]:
    own = os.getpid()
    for entry in PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == own:
            continue
        marks = _marks(entry)
        if not _belongs(entry, marks, folders):
            continue
        identity = identify(int(entry.name))
        if identity is None or not is_running(identity):
            continue
        pod = pods.get(identity, marks.get(POD_UID, ""))
        role = "pod" if pod else marks.get(PROCESS_ROLE, "unknown")
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            command = ""
        yield Leftover(identity, role, command, pod)


def _belongs(entry: Path, marks: Mapping[str, str], folders: Folders) -> bool:
    """Return whether the process was started for this folder.

    A folder that was moved keeps its processes. A folder that was removed leaves its processes to the next one at the
    same path.
    """
    home, marked = folders.home, marks.get(PROCESS_HOME, "")
    if home and marked:
        removed = marks.get(PROCESS_OF) == str(folders.state_dir) and not working_folder(int(entry.name))
        return marked == home or removed
    return marks.get(PROCESS_OF) == str(folders.state_dir)


def _marks(entry: Path) -> dict[str, str]:
    """Return the KNODEL_ variables of a process; empty when its environment is not readable."""
    try:
        environment = (entry / "environ").read_bytes()
    except OSError:  # it has ended, or belongs to another user
        return {}
    pairs = (
        line.decode(errors="replace").partition("=") for line in environment.split(b"\0") if line.startswith(b"KNODEL_")
    )
    return {name: value for name, _, value in pairs}


def _signal(leftover: Leftover, number: signal.Signals) -> None:
    """Send a signal to the process, or to its process group if it leads one."""
    pid = leftover.identity.pid
    if not is_running(leftover.identity):
        return
    if session_of(pid) == pid:
        kill_group(pid, number)
        return
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _wait(leftovers: Collection[Leftover], seconds: float) -> list[Leftover]:
    deadline = time.monotonic() + seconds
    while True:
        running = [leftover for leftover in leftovers if is_running(leftover.identity)]
        if not running or time.monotonic() >= deadline:
            return running
        time.sleep(POLL_INTERVAL)
