"""Processes of a state folder, found by the marks in their environment: for `knodel doctor`, `down`, and a new kubelet.

A copy of the folder is another one: what the original started is not found through it.

A process that was forked from a zygote shows the zygote's environment in /proc, so it is known by its run file; what a
Pod's process started belongs to its session.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clusters.base.identity import PROC, Identity, identify, is_running, kill_group, session_of, working_folder
from clusters.embedded.kubelet.process.environment import POD_UID, PROCESS_HOME, PROCESS_OF, PROCESS_ROLE
from clusters.embedded.kubelet.process.folders import Folders, Run
from clusters.embedded.kubelet.process.zygote import RECORD

POD_ROLES: Final = ("pod", "zygote")  # of processes that the kubelet starts
LOOK_EVERY: Final = 0.02  # s, while ended processes are waited for


@dataclass(frozen=True, slots=True)
class Leftover:
    """A process of the state folder. `role` as marked by its starter; `pod`: the Pod's uid where that is known."""

    identity: Identity
    role: str
    command: str
    pod: str = ""

    def __str__(self) -> str:
        return f"{self.role} process {self.identity.pid} ({self.command})"


def find_leftovers(state_dir: Path) -> list[Leftover]:
    """All running processes marked with this state folder, whoever started them, but the calling one."""
    folders = Folders(state_dir)
    pods = {run.identity: uid for uid, run in folders.runs().items()}
    return list(_scan(folders, pods))


def end_leftovers(leftovers: Collection[Leftover], grace: float) -> list[Leftover]:
    """SIGTERM, then SIGKILL after `grace` seconds; blocks. Returns what is left even then."""
    for leftover in leftovers:
        _signal(leftover, signal.SIGTERM)
    left = _wait(leftovers, grace)
    for leftover in left:
        _signal(leftover, signal.SIGKILL)
    return _wait(left, grace)


def end_unclaimed(folders: Folders, claimed: Collection[str]) -> list[Leftover]:
    """Kill what the kubelet's runtimes started for Pods (uids) that are not `claimed`, and what nobody recorded.

    Returns what was ended. The zygotes stay.
    """
    runs = folders.runs()
    owners = {run.identity.pid for uid, run in runs.items() if uid in claimed and is_running(run.identity)}
    owners |= {run.identity.pid for run in _zygotes(folders) if is_running(run.identity)}
    unclaimed = [
        leftover
        for leftover in _scan(folders, {run.identity: uid for uid, run in runs.items()})
        if leftover.role in POD_ROLES and session_of(leftover.identity.pid) not in owners
    ]
    for leftover in unclaimed:
        _signal(leftover, signal.SIGKILL)
    return unclaimed


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
        yield Leftover(identity, role, _command(entry), pod)


def _belongs(entry: Path, marks: Mapping[str, str], folders: Folders) -> bool:
    """Whether the process was started for this folder, also before it was moved, or for one that was removed here."""
    home, marked = folders.home, marks.get(PROCESS_HOME, "")
    if home and marked:
        removed = marks.get(PROCESS_OF) == str(folders.state_dir) and not working_folder(int(entry.name))
        return marked == home or removed
    return marks.get(PROCESS_OF) == str(folders.state_dir)


def _zygotes(folders: Folders) -> Iterator[Run]:
    for path in folders.zygotes.glob(f"*/{RECORD}"):
        run = Run.parse(path.read_text())
        if run is not None:
            yield folders.own(run)


def _marks(entry: Path) -> dict[str, str]:
    """The marks in the environment of a process; none when it is not ours to read."""
    try:
        environment = (entry / "environ").read_bytes()
    except OSError:  # ended meanwhile, or of another user
        return {}
    pairs = (
        line.decode(errors="replace").partition("=") for line in environment.split(b"\0") if line.startswith(b"KNODEL_")
    )
    return {name: value for name, _, value in pairs}


def _command(entry: Path) -> str:
    try:
        return (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def _signal(leftover: Leftover, number: signal.Signals) -> None:
    """To its group when it leads one, else to itself."""
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
        left: Sequence[Leftover] = [leftover for leftover in leftovers if is_running(leftover.identity)]
        if not left or time.monotonic() >= deadline:
            return list(left)
        time.sleep(LOOK_EVERY)
