"""What a platform that was killed left running, found and ended without it.

Gateway and activator are known by their records, and by their command lines where a crash came between start and
record; processes of Pods and zygotes by the marks that the kubelet puts into their environment.
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
from clusters.gateway.admin import Admin
from clusters.gateway.bootstrap import ADMIN_SOCKET
from clusters.gateway.envoy import BOOTSTRAP
from clusters.gateway.errors import NotServing
from serving.types.settings.state import ACTIVATOR_FOLDER, GATEWAY_FOLDER, forget

GATEWAY, ACTIVATOR = "gateway", "activator"
ACTIVATOR_MODULE = "clusters.embedded.activator"
LOOK_EVERY = 0.05  # s between two looks at how many requests are under way
LEAST_GRACE = 1.0  # s that processes get to end by themselves, also when no time is left
ROUNDS = 5  # of searches: what ends may have started something just before, and a busy kernel takes its time


@dataclass(frozen=True, slots=True)
class Remain:
    """A process of a state folder. `role`: gateway, activator, zygote, or pod."""

    role: str
    identity: Identity

    def __str__(self) -> str:
        return f"{self.role} {self.identity.pid}"


def find_remains(state: Path) -> list[Remain]:
    """Every running process that a platform on this folder started, in the order in which they must end."""
    pods = [Remain(leftover.role, leftover.identity) for leftover in find_leftovers(state)]
    return [*_gateways(state), *_activators(state), *sorted(pods, key=lambda remain: remain.role == "zygote")]


class Ended(NamedTuple):
    """The result of `end_remains`."""

    found: list[Remain]
    running: list[Remain]  # even after SIGKILL
    files: list[Path]  # that a read-only disk keeps


def end_remains(state: Path, grace: float, show: Callable[[str], None]) -> Ended:
    """End them in order: no new requests, those under way finish within `grace` seconds, then the processes.

    Their records and sockets are removed. `show` gets lines of progress. Blocks.
    """
    found: list[Remain] = []
    deadline = time.monotonic() + grace
    for _ in range(ROUNDS):
        remains = find_remains(state)
        if not remains:
            break
        found += [remain for remain in remains if remain not in found]
        show(f"ending what a platform left running: {summary(remains)}")
        asyncio.run(_end_services(state, remains, max(0.0, deadline - time.monotonic())))
        end_leftovers(find_leftovers(state), max(LEAST_GRACE, deadline - time.monotonic()))
    files = [*forget(state), *_forget_services(state)]
    return Ended(found, find_remains(state), files)


def summary(remains: Collection[Remain]) -> str:
    """How many of each role: `gateway, activator, 3 pods`."""
    counts: dict[str, int] = {}
    for remain in remains:
        counts[remain.role] = counts.get(remain.role, 0) + 1
    return ", ".join(f"{count} {role}s" if count > 1 else role for role, count in counts.items())


async def _end_services(state: Path, remains: Sequence[Remain], grace: float) -> None:
    """Gateway first: the activator and the Pods finish what it has sent them."""
    for remain in remains:
        if remain.role == GATEWAY:
            await _drain(state / GATEWAY_FOLDER, grace)
            await processes.terminate(remain.identity, envoy.STOP_GRACE)
    for remain in remains:
        if remain.role == ACTIVATOR:
            await processes.terminate(remain.identity, envoy.STOP_GRACE)  # without a gateway nobody waits for it


async def _drain(folder: Path, grace: float) -> None:
    admin, deadline = Admin(folder), time.monotonic() + grace
    try:
        await admin.drain_listeners()
        while await admin.active_requests() and time.monotonic() < deadline:  # noqa: ASYNC110 - Envoy tells nobody
            await asyncio.sleep(LOOK_EVERY)
    except NotServing:
        return  # it hangs: it has nothing to finish, and is ended all the same
    finally:
        await admin.close()


def _gateways(state: Path) -> Iterator[Remain]:
    folder = state / GATEWAY_FOLDER

    def is_ours(command: Sequence[str]) -> bool:
        return Path(command[0]).name.startswith("envoy") and _names(command, "-c", BOOTSTRAP)

    return _services(GATEWAY, folder / envoy.RECORD, is_ours)


def _activators(state: Path) -> Iterator[Remain]:
    folder = state / ACTIVATOR_FOLDER

    def is_ours(command: Sequence[str]) -> bool:
        return ACTIVATOR_MODULE in command and _names(command, "--control", activator.SOCKET)

    return _services(ACTIVATOR, folder / activator.RECORD, is_ours)


def _services(role: str, record: Path, is_ours: Callable[[Sequence[str]], bool]) -> Iterator[Remain]:
    found = processes.read_record(record)
    recorded = None if found is None else found.identity
    if recorded is not None:
        yield Remain(role, recorded)
    for pid, command in _commands():
        identity = identify(pid) if is_ours(command) and _is_for(pid, command, record.parent) else None
        if identity is not None and identity != recorded and is_running(identity):
            yield Remain(role, identity)


def _is_for(pid: int, command: Sequence[str], folder: Path) -> bool:
    """Whether a service works in this very folder, not in a copy; one whose folder was removed is known by its path."""
    works_in = working_folder(pid)
    if works_in:
        return works_in == folder_id(folder)
    return any(Path(word).parent == folder for word in command)


def _names(command: Sequence[str], option: str, name: str) -> bool:
    """Whether `option` is followed by the path of a file of this name."""
    return any(before == option and Path(value).name == name for before, value in pairwise(command))


def _commands() -> Iterator[tuple[int, list[str]]]:
    """(pid, command line) of every process that we may read."""
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            content = (entry / "cmdline").read_bytes()
        except OSError:  # ended meanwhile
            continue
        if content:
            yield int(entry.name), content.decode("utf-8", "surrogateescape").rstrip("\0").split("\0")


def _forget_services(state: Path) -> list[Path]:
    gateway, held = state / GATEWAY_FOLDER, state / ACTIVATOR_FOLDER
    return remove_files(
        gateway / envoy.RECORD, gateway / ADMIN_SOCKET, held / activator.RECORD, held / activator.SOCKET
    )
