"""The testbed's control groups: in every hierarchy one for its pods, and for its components one that shares the CPU.

As on a node whose services systemd starts: what the pods together get of a busy processor depends on the node's size,
not on how many threads the components have.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.testbed import mounts, waiting
from tests.testbed.errors import MachineLacks

ROOT: Final = "knodel-testbed"
SYSTEM: Final = "knodel-testbed-system"
_KILLED: Final = 10.0  # s within which the kernel ends killed processes
_UNIFIED: Final = "cgroup2"
_SHARES: Final = "cpu.shares"
_SHARES_OF_CORE: Final = 1024  # what the kubelet gives to all pods for each core; a service of systemd has it in all


def ensure() -> None:
    """Make the groups; the kubelet wants that of the pods to be there. Raises MachineLacks when that is refused."""
    for hierarchy, kind in _hierarchies():
        if kind == _UNIFIED:
            _enable_controllers(hierarchy)
        try:
            (hierarchy / ROOT).mkdir(exist_ok=True)
            if (shares := hierarchy / ROOT / _SHARES).exists():
                shares.write_text(str(_SHARES_OF_CORE * (os.cpu_count() or 1)))
            if _shares_the_cpu(hierarchy / ROOT):
                (hierarchy / SYSTEM).mkdir(exist_ok=True)
        except OSError as exc:
            raise MachineLacks(f"no control group can be made in {hierarchy}: {exc.strerror}") from exc


def join(pid: int) -> None:
    """Put a component that was just started into its group."""
    for hierarchy, _ in _hierarchies():
        members = hierarchy / SYSTEM / "cgroup.procs"
        with contextlib.suppress(ProcessLookupError):  # it ended at once, as its log says
            if members.exists():
                members.write_text(str(pid))


def remove() -> None:
    """Kill what runs in the groups and remove them. Raises TestbedError when some stay, as a process survives."""
    waiting.until(f"the control groups {ROOT} and {SYSTEM} are empty and removed", _is_gone, _KILLED)


def _shares_the_cpu(group: Path) -> bool:
    return any((group / file).exists() for file in (_SHARES, "cpu.weight"))


def _is_gone() -> bool:
    """One try: a group can be removed once the kernel has ended what ran in it."""
    for group in _groups():
        for pid in _members(group):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(OSError):
            group.rmdir()
    return not any(_groups())


def _members(group: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return (group / "cgroup.procs").read_text().split()
    return []


def _groups() -> Iterator[Path]:
    """Every group of the testbed, the innermost first."""
    for hierarchy, _ in _hierarchies():
        for group in (ROOT, SYSTEM):
            for folder, _, _ in os.walk(hierarchy / group, topdown=False):
                yield Path(folder)


def _hierarchies() -> list[tuple[Path, str]]:
    return [(mount.point, mount.kind) for mount in mounts.listed() if mount.kind in ("cgroup", _UNIFIED)]


def _enable_controllers(hierarchy: Path) -> None:
    """Hand every controller of the unified hierarchy down to our group."""
    for controller in (hierarchy / "cgroup.controllers").read_text().split():
        with contextlib.suppress(OSError):  # one that the machine keeps for version 1
            (hierarchy / "cgroup.subtree_control").write_text(f"+{controller}")
