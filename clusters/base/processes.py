"""Processes that outlive the control plane: they run in their own sessions, and a record lets the next one adopt them.

`clusters.base.identity` identifies processes. It is a module of its own because a zygote imports as little as possible.
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
    """Start a process in a session of its own, which outlives this process. Its output is appended to `log`.

    It inherits the open `files` under the same descriptor numbers. It is a child of this process: use `wait_ended` to
    wait for its end. Raises OSError when it cannot start.
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
    child.returncode = 0  # `wait_ended` reaps it; this prevents the warning of Popen's destructor about a running child
    return identify(child.pid) or Identity(child.pid, -1)


async def wait_ended(identity: Identity) -> None:
    """Return once exactly this process has ended, and reap it if it is a child."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    try:
        if is_running(identity):  # checked after the open, so the descriptor belongs to this process
            loop.add_reader(descriptor, _resolve, ended)
            await ended
        _reap(identity)
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def terminate(identity: Identity, grace: float) -> None:
    """End a process by SIGTERM, and by SIGKILL after `grace` seconds; return once it has ended.

    A process that has ended already is accepted.
    """
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
    """Send a signal to exactly this process; return False when it has ended."""
    if not is_running(identity):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(identity.pid, number)
        return True
    return False


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """A process that the next control plane may adopt, and the version of the program that it runs."""

    identity: Identity
    version: str = ""


def write_record(path: Path, record: ProcessRecord) -> None:
    """Write the record atomically, bound to its folder."""
    temporary = path.with_name(f".{path.name}.new")
    content = record.identity.to_json() | {"home": folder_id(path.parent), "version": record.version}
    temporary.write_text(json.dumps(content) + "\n")
    temporary.replace(path)


def read_record(path: Path) -> ProcessRecord | None:
    """Return the record of a process that still runs, else None.

    A record in another folder than it was written to, such as a copy, is ignored, and so is one of another boot.
    """
    try:
        content = json.loads(path.read_text())
        identity, home = Identity.parse(content), content["home"]
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None
    if home != folder_id(path.parent) or not is_running(identity):
        return None
    return ProcessRecord(identity, str(content.get("version", "")))


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _reap(identity: Identity) -> None:
    """Reap exactly this process: another process with its pid is not our child."""
    if identify(identity.pid) == identity:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(identity.pid, os.WNOHANG)
