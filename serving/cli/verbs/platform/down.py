"""`knodel down`: stop the platform in order, and stop the processes that a killed platform left running."""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress
from pathlib import Path

import click

from clusters.embedded.store.lock import FolderLock, Locked, ReadOnlyFolder, holder
from serving.cli.base.output import ProgressLine
from serving.cli.context import Session, parse_timeout, timeout_option, verb
from serving.client.errors import ClientError, TimedOut

DRAIN = 30.0  # s for active requests if the control plane was killed; the same as in an orderly stop
KILL_TIMEOUT = 5.0  # s from SIGKILL to the end of the process
POLL = 0.02  # s between two reads of the lock, which sends no event when it is released
TICK = 0.5  # s between two updates of the progress line


@verb(
    "down",
    place="machine",
    namespaced=False,
    examples=[
        ("Stop the platform when its requests are finished", "knodel down"),
        ("End requests that still run after 10 seconds", "knodel down --timeout 10s --force"),
    ],
)
@timeout_option("60s", "Maximum time for active requests to finish.")
@click.option("--force", is_flag=True, help="Kill processes that still run after that time.")
def command(session: Session, timeout: str, force: bool) -> None:
    """Stop the platform and every process that it started. The next `knodel up` starts the models again."""
    deadline = time.monotonic() + parse_timeout(timeout)
    state = session.state
    ended = [f"platform {pid}"] if (pid := _end_platform(state, deadline, force)) else []
    others, files = _stop_orphans(state, deadline)
    ended += others
    if session.output.structured:
        session.output.value({"state": str(state), "ended": ended})
    elif ended:
        session.output.text(f"the platform on {state} has ended ({', '.join(ended)})")
    else:
        session.output.text(f"no platform runs on {state}: nothing to stop")
    if files:
        names = ", ".join(str(path.relative_to(state)) for path in files)
        session.output.warn(
            f"{state} is on a read-only disk, so files of the stopped platform remain: {names}; "
            f"when the disk is writable, `knodel up --detach` replaces them"
        )


def _end_platform(state: Path, deadline: float, force: bool) -> int:
    """Send SIGTERM to the control plane, which stops everything in order. Return its pid, 0 if none runs."""
    pid = _pid_of_holder(state, deadline)
    if not pid:
        return 0
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return pid  # it has just ended
    try:
        if holder(state) == pid:  # read after the open, so the pidfd cannot be of another process with this pid
            _signal(process, pid, signal.SIGTERM)
        if not _wait(process, pid, deadline):
            if not force:
                raise TimedOut(
                    f"the platform (process {pid}) has not stopped in time, since requests are still active: "
                    f"it continues to stop; `knodel down --force` does not wait for them"
                )
            _signal(process, pid, signal.SIGKILL)
            _wait(process, pid, time.monotonic() + KILL_TIMEOUT)
    finally:
        os.close(process)
    return pid


def _pid_of_holder(state: Path, deadline: float) -> int:
    """Return the pid that holds the lock of the folder, 0 for none. Wait for a new holder to write its pid."""
    while (pid := holder(state)) == 0:
        if time.monotonic() > deadline:
            raise TimedOut(f"an unknown process holds {state}: `fuser {state / 'lock'}` shows it")
        time.sleep(POLL)
    return pid or 0


def _signal(process: int, pid: int, number: signal.Signals) -> None:
    try:
        signal.pidfd_send_signal(process, number)
    except ProcessLookupError:
        return  # it has ended
    except PermissionError as error:
        raise ClientError(f"the platform (process {pid}) belongs to another user: stop it as that user") from error


def _wait(process: int, pid: int, deadline: float) -> bool:
    """Wait until the process ends. Return whether it did before the deadline."""
    progress, poll = ProgressLine(), select.poll()
    poll.register(process, select.POLLIN)
    try:
        while (left := deadline - time.monotonic()) > 0:
            if poll.poll(min(left, TICK) * 1000):
                return True
            progress.show(f"stopping the platform (process {pid}): active requests are finishing")
        return bool(poll.poll(0))
    finally:
        progress.clear()


def _stop_orphans(state: Path, deadline: float) -> tuple[list[str], list[Path]]:
    """Stop the orphaned processes while holding the lock of the folder, so that no new platform adopts them.

    On a read-only disk no platform can start, so the lock is not needed. Return the stopped processes, and the files
    that could not be removed from such a disk.
    """
    from serving.cli.orphans import find_orphans, stop_orphans  # heavy; not needed to stop a running platform

    if not state.is_dir() and not find_orphans(state):
        return [], []
    lock, progress = FolderLock(state), ProgressLine()
    with suppress(ReadOnlyFolder):
        _acquire(lock, deadline)
    try:
        ended = stop_orphans(state, min(DRAIN, max(0.0, deadline - time.monotonic())), progress.show)
    finally:
        lock.release()
        progress.clear()
    if ended.running:
        names = ", ".join(map(str, ended.running))
        raise ClientError(f"{names} cannot be killed: `ps` shows their state")
    return [str(remain) for remain in ended.found], ended.files


def _acquire(lock: FolderLock, deadline: float) -> None:
    """Acquire the lock; wait while another `knodel down` holds it."""
    while True:
        try:
            lock.acquire()
            return
        except Locked as error:
            if time.monotonic() > deadline:
                raise TimedOut(str(error)) from error
            time.sleep(POLL)
