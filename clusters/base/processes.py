"""Processes that outlive the control plane: started as sessions of their own, recorded, found again by the next one.

`clusters.base.identity` says which process is which; it is apart because a zygote imports as little as possible.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusters.base.identity import Identity, folder_id, identify, is_running


def start_detached(
    command: Sequence[str],
    *,
    log: Path,
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    files: Sequence[int] = (),
) -> Identity:
    """Start a process as a session of its own whose output is appended to `log`; it outlives this process.

    It inherits the open `files`, by the same numbers.

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
            pass_fds=files,
        )
    child.returncode = 0  # `wait_ended` reaps it: keeps the destructor of Popen from warning of a running child
    return identify(child.pid) or Identity(child.pid, -1)


async def wait_ended(identity: Identity) -> None:
    """Return once this very process has ended; reaps it when it is our child."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    try:
        if is_running(identity):  # looked at after the open, so the descriptor is of this very process
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
    if not is_running(identity):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(identity.pid, number)
        return True
    return False


@dataclass(frozen=True, slots=True)
class Record:
    """A process that the next control plane may adopt, and the version of the program that it runs."""

    identity: Identity
    version: str = ""


def write_record(path: Path, record: Record) -> None:
    """Write the record, bound to the folder that it lies in; a crash leaves the former or the new one."""
    temporary = path.with_name(f".{path.name}.new")
    content = record.identity.to_json() | {"home": folder_id(path.parent), "version": record.version}
    temporary.write_text(json.dumps(content) + "\n")
    temporary.replace(path)


def read_record(path: Path) -> Record | None:
    """Return the record of a process that still runs, else None.

    A record that lies in another folder than it was written to, as in a copy, or that is of another boot, is none.
    """
    try:
        content = json.loads(path.read_text())
        identity, home = Identity.parse(content), content["home"]
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None
    if home != folder_id(path.parent) or not is_running(identity):
        return None
    return Record(identity, str(content.get("version", "")))


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _reap(identity: Identity) -> None:
    """Only this very process: another one with its pid is not ours to wait for."""
    if identify(identity.pid) == identity:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(identity.pid, os.WNOHANG)
