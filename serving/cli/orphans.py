"""Find and stop the processes that a killed platform has left running.

Gateway and activator are found by their records, or by their command lines if the platform crashed before it wrote
the record. Processes of Pods and zygotes are found by variables that the kubelet sets in their environment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from clusters.base import processes
from clusters.base.identity import PROC, Identity, folder_id, identify, is_running, working_folder
from clusters.base.removal import remove_files
from clusters.embedded.activator import process as activator
from clusters.embedded.kubelet.leftovers import end_leftovers, find_leftovers
from clusters.gateway import process as envoy
from clusters.gateway.bootstrap import ADMIN_SOCKET, BOOTSTRAP
from clusters.gateway.errors import NotServing
from serving.types.settings.state import ACTIVATOR_FOLDER, GATEWAY_FOLDER, forget

GATEWAY, ACTIVATOR = "gateway", "activator"
ACTIVATOR_MODULE = "clusters.embedded.activator"
POLL_INTERVAL = 0.05  # s between two reads of the number of active requests
MIN_GRACE = 1.0  # s for processes to terminate by themselves, also after the deadline
ROUNDS = 5  # searches: a process may have started another one just before it ended, and a busy kernel is slow


@dataclass(frozen=True, slots=True)
class Orphan:
    """A process of a state folder. `role`: gateway, activator, zygote, or pod."""

    role: str
    identity: Identity

    def __str__(self) -> str:
        return f"{self.role} {self.identity.pid}"


def find_orphans(state: Path) -> list[Orphan]:
    """Return every running process that a platform on this folder started, in the order in which to stop them."""
    pods = [Orphan(leftover.role, leftover.identity) for leftover in find_leftovers(state)]
    return [*_gateways(state), *_activators(state), *sorted(pods, key=lambda remain: remain.role == "zygote")]


class StopResult(NamedTuple):
    """The result of `stop_orphans`."""

    found: list[Orphan]
    running: list[Orphan]  # still running after SIGKILL
    files: list[Path]  # files that could not be removed from a read-only disk


def stop_orphans(state: Path, grace: float, show: Callable[[str], None]) -> StopResult:
    """Stop the orphans: refuse new requests, let active ones finish for `grace` seconds, end the processes.

    Remove their records and sockets. `show` receives lines of progress. Blocks.
    """
    found: list[Orphan] = []
    deadline = time.monotonic() + grace
    for _ in range(ROUNDS):
        orphans = find_orphans(state)
        if not orphans:
            break
        found += [orphan for orphan in orphans if orphan not in found]
        show(f"stopping orphaned processes: {summary(orphans)}")
        asyncio.run(_stop_services(state, orphans, max(0.0, deadline - time.monotonic())))
        end_leftovers(find_leftovers(state), max(MIN_GRACE, deadline - time.monotonic()))
    gateway, held = state / GATEWAY_FOLDER, state / ACTIVATOR_FOLDER
    kept = remove_files(
        gateway / envoy.RECORD, gateway / ADMIN_SOCKET, held / activator.RECORD, held / activator.SOCKET
    )
    return StopResult(found, find_orphans(state), [*forget(state), *kept])


def summary(orphans: Collection[Orphan]) -> str:
    """Return how many orphans have each role, such as `gateway, activator, 3 pods`."""
    counts: dict[str, int] = {}
    for orphan in orphans:
        counts[orphan.role] = counts.get(orphan.role, 0) + 1
    return ", ".join(f"{count} {role}s" if count > 1 else role for role, count in counts.items())


async def _stop_services(state: Path, orphans: Sequence[Orphan], grace: float) -> None:
    """Stop the gateway first, so that the activator and the Pods can finish its requests."""
    for orphan in orphans:
        if orphan.role == GATEWAY:
            await _drain(state / GATEWAY_FOLDER, grace)
            await processes.terminate(orphan.identity, envoy.STOP_GRACE)
    for orphan in orphans:
        if orphan.role == ACTIVATOR:
            await processes.terminate(orphan.identity, envoy.STOP_GRACE)  # it has no clients without a gateway


async def _drain(folder: Path, grace: float) -> None:
    from clusters.gateway.admin import Admin  # loads aiohttp: half of the time of a `knodel down` without orphans

    admin, deadline = Admin(folder), time.monotonic() + grace
    try:
        await admin.drain_listeners()
        while await admin.active_requests() and time.monotonic() < deadline:  # noqa: ASYNC110 - Envoy sends no event
            await asyncio.sleep(POLL_INTERVAL)
    except NotServing:
        return  # it hangs, so no request can finish
    finally:
        await admin.close()


def _gateways(state: Path) -> Iterator[Orphan]:
    folder = state / GATEWAY_FOLDER

    def is_ours(command: Sequence[str]) -> bool:
        return Path(command[0]).name.startswith("envoy") and _names(command, "-c", BOOTSTRAP)

    return _services(GATEWAY, folder / envoy.RECORD, is_ours)


def _activators(state: Path) -> Iterator[Orphan]:
    folder = state / ACTIVATOR_FOLDER

    def is_ours(command: Sequence[str]) -> bool:
        return ACTIVATOR_MODULE in command and _names(command, "--control", activator.SOCKET)

    return _services(ACTIVATOR, folder / activator.RECORD, is_ours)


def _services(role: str, record: Path, is_ours: Callable[[Sequence[str]], bool]) -> Iterator[Orphan]:
    found = processes.read_record(record)
    recorded = None if found is None else found.identity
    if recorded is not None:
        yield Orphan(role, recorded)
    for pid, command in _commands():
        identity = identify(pid) if is_ours(command) and _is_for(pid, command, record.parent) else None
        if identity is not None and identity != recorded and is_running(identity):
            yield Orphan(role, identity)


def _is_for(pid: int, command: Sequence[str], folder: Path) -> bool:
    """Return whether the service works in this folder, not in a copy; for a removed folder, compare the path."""
    works_in = working_folder(pid)
    if works_in:
        return works_in == folder_id(folder)
    return any(Path(word).parent == folder for word in command)


def _names(command: Sequence[str], option: str, name: str) -> bool:
    """Return whether `option` is followed by the path of a file with this name."""
    return any(before == option and Path(value).name == name for before, value in pairwise(command))


def _commands() -> Iterator[tuple[int, list[str]]]:
    """Yield (pid, command line) of every readable process."""
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            content = (entry / "cmdline").read_bytes()
        except OSError:  # the process has ended
            continue
        if content:
            yield int(entry.name), content.decode("utf-8", "surrogateescape").rstrip("\0").split("\0")
