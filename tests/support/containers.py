"""Processes of a container that runs on this machine, as those of the testbed's node do."""

from __future__ import annotations

from pathlib import Path

from clusters.base.objects import Object


def processes_of(status: Object) -> list[int]:
    """The pids, lowest first, in the cgroup of the container with this entry of `status.containerStatuses`."""
    container = str(status["containerID"]).rpartition("/")[2]
    return sorted(int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cgroup") if container in _read(path))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the process has ended meanwhile
        return ""
