"""Processes that outlive the control plane: started as sessions of their own, recorded, found again by the next one.

A pid alone says nothing after a restart: the number may be another process by now. Pid and start time (clock ticks
since boot, field 22 of `/proc/PID/stat`) together are unique until the machine restarts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
_STATE: Final = 0  # field 3 of /proc/PID/stat (proc_pid_stat(5)), counted from the command's closing parenthesis
_START_TICKS: Final = 19  # field 22
_ENDED_STATES: Final = frozenset("ZXx")  # zombie, dead


@dataclass(frozen=True, slots=True)
class Identity:
    """A process of this boot."""

    pid: int
    start_ticks: int


def identify(pid: int) -> Identity | None:
    """The identity of the running process `pid`; None when there is none, or it has ended and waits to be reaped."""
    fields = _stat(pid)
    return None if fields is None or fields[_STATE] in _ENDED_STATES else Identity(pid, int(fields[_START_TICKS]))


def is_alive(identity: Identity) -> bool:
    """Whether this very process runs."""
    return identify(identity.pid) == identity


def start_detached(
    command: Sequence[str], *, log: Path, cwd: Path, environment: Mapping[str, str] | None = None
) -> Identity:
    """Start a process as a session of its own whose output is appended to `log`; it outlives this process.

    It is a child of this process, which learns of its end through `wait_ended`. Raises OSError when it cannot start.
    """
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=cwd,
            env=environment,
            start_new_session=True,
        )
    child.returncode = 0  # `wait_ended` reaps it: keeps the destructor of Popen from warning of a running child
    return Identity(child.pid, _start_ticks(child.pid))


async def wait_ended(identity: Identity) -> None:
    """Return once this very process has ended; reaps it when it is our child."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    try:
        if is_alive(identity):  # looked at after the open, so the descriptor is of this very process
            loop.add_reader(descriptor, _settle, ended)
            await ended
        _reap(identity)
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def terminate(identity: Identity, grace: float) -> None:
    """SIGTERM, after `grace` seconds SIGKILL; returns once it has ended. A process that has ended is no error."""
    if not send_signal(identity, signal.SIGTERM):
        await wait_ended(identity)
        return
    try:
        async with asyncio.timeout(grace):
            await wait_ended(identity)
    except TimeoutError:
        send_signal(identity, signal.SIGKILL)
        await wait_ended(identity)


def send_signal(identity: Identity, number: signal.Signals) -> bool:
    """Signal this very process; False when it has ended."""
    if not is_alive(identity):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(identity.pid, number)
        return True
    return False


def write_record(path: Path, identity: Identity) -> None:
    """Put the identity down where the next control plane finds it; a crash leaves the former or the new record."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(json.dumps(asdict(identity)) + "\n")
    temporary.replace(path)


def read_record(path: Path) -> Identity | None:
    """The process of the record, when it still runs; None without a record, or with an unreadable one."""
    try:
        record = json.loads(path.read_text())
        identity = Identity(int(record["pid"]), int(record["start_ticks"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return identity if is_alive(identity) else None


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _reap(identity: Identity) -> None:
    """Only this very process: another one with its pid is not ours to wait for."""
    if _start_ticks(identity.pid) == identity.start_ticks:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(identity.pid, os.WNOHANG)


def _start_ticks(pid: int) -> int:
    """Of a process that runs or waits to be reaped; -1 when there is none."""
    fields = _stat(pid)
    return -1 if fields is None else int(fields[_START_TICKS])


def _stat(pid: int) -> list[str] | None:
    """The fields of `/proc/PID/stat` from the third on; the second, the command's name, may hold anything."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
