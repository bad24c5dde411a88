"""`knodel down`: the platform ends in order; what one that was killed left running is ended too."""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress
from pathlib import Path

import click

from clusters.embedded.store.lock import FolderLock, Locked, ReadOnlyFolder, holder
from serving.cli.base.errors import CommandError, NotInTime
from serving.cli.base.output import Progress
from serving.cli.client.wait import parse_timeout
from serving.cli.context import Session, verb

DRAIN = 30.0  # s that requests under way get when no control plane is left to end them; as in an orderly end
KILLED_WITHIN = 5.0  # s from SIGKILL to the end of the process
POLL = 0.02  # s between two looks at the lock, which tells nobody that it is free
TICK = 0.5  # s between two lines of progress


@verb("down", place="machine", namespaced=False)
@click.option("--timeout", default="60s", show_default=True, help="Longest time for requests in flight to finish.")
@click.option("--force", is_flag=True, help="Kill processes that still run after that time.")
def command(session: Session, timeout: str, force: bool) -> None:
    """Stop the platform and every process that it started. The next `knodel up` starts the models again."""
    deadline = time.monotonic() + parse_timeout(timeout)
    state = session.state
    ended = [f"platform {pid}"] if (pid := _end_platform(state, deadline, force)) else []
    others, files = _end_the_rest(state, deadline)
    ended += others
    if session.output.structured:
        session.output.value({"state": str(state), "ended": ended})
    elif ended:
        session.output.text(f"the platform on {state} has ended ({', '.join(ended)})")
    else:
        session.output.text(f"no platform runs on {state}: nothing to end")
    if files:
        names = ", ".join(str(path.relative_to(state)) for path in files)
        session.output.note(
            f"{state} is on a read-only disk, so these files of the ended platform stay there: {names}; "
            f"once the disk is writable, `knodel up --detach` replaces them"
        )


def _end_platform(state: Path, deadline: float, force: bool) -> int:
    """SIGTERM to the control plane, which ends everything in order. Returns its pid, 0 when none runs."""
    pid = _pid_of_holder(state, deadline)
    if not pid:
        return 0
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return pid  # it ended just now
    try:
        if holder(state) == pid:  # looked at after the open, so the descriptor is of this very process
            _signal(process, pid, signal.SIGTERM)
        if not _wait(process, pid, deadline):
            if not force:
                raise NotInTime(
                    f"the platform (process {pid}) has not ended in time, requests are under way: "
                    f"it goes on ending; `knodel down --force` does not wait for them"
                )
            _signal(process, pid, signal.SIGKILL)
            _wait(process, pid, time.monotonic() + KILLED_WITHIN)
    finally:
        os.close(process)
    return pid


def _pid_of_holder(state: Path, deadline: float) -> int:
    """The process that has the folder's lock, 0 when none has. One that just takes it has not told its pid yet."""
    while (pid := holder(state)) == 0:
        if time.monotonic() > deadline:
            raise NotInTime(f"some process holds {state} and does not say which: `fuser {state / 'lock'}` finds it")
        time.sleep(POLL)
    return pid or 0


def _signal(process: int, pid: int, number: signal.Signals) -> None:
    try:
        signal.pidfd_send_signal(process, number)
    except ProcessLookupError:
        return  # it ended meanwhile, which is what was wanted
    except PermissionError as error:
        raise CommandError(f"the platform (process {pid}) belongs to another user: end it as that user") from error


def _wait(process: int, pid: int, deadline: float) -> bool:
    """Whether the process ended before the deadline."""
    progress = Progress()
    poll = select.poll()
    poll.register(process, select.POLLIN)
    try:
        while (left := deadline - time.monotonic()) > 0:
            if poll.poll(min(left, TICK) * 1000):
                return True
            progress.show(f"stopping the platform (process {pid}): requests in flight finish")
        return bool(poll.poll(0))
    finally:
        progress.clear()


def _end_the_rest(state: Path, deadline: float) -> tuple[list[str], list[Path]]:
    """End what still runs, with the folder's lock held, so that no new platform takes it over meanwhile.

    On a read-only disk no platform can start, so the lock is not needed. Returns the processes that were ended, and the
    files that such a disk keeps.
    """
    from serving.cli.remains import end_remains, find_remains  # the parts of the platform are heavy

    if not state.is_dir() and not find_remains(state):
        return [], []
    lock, progress = FolderLock(state), Progress()
    with suppress(ReadOnlyFolder):
        _acquire(lock, deadline)
    try:
        ended = end_remains(state, min(DRAIN, max(0.0, deadline - time.monotonic())), progress.show)
    finally:
        lock.release()
        progress.clear()
    if ended.running:
        names = ", ".join(map(str, ended.running))
        raise CommandError(f"{names} cannot be ended: the kernel holds them, look at `ps`")
    return [str(remain) for remain in ended.found], ended.files


def _acquire(lock: FolderLock, deadline: float) -> None:
    """Take the lock; another `knodel down` gives it back soon."""
    while True:
        try:
            lock.acquire()
            return
        except Locked as error:
            if time.monotonic() > deadline:
                raise NotInTime(str(error)) from error
            time.sleep(POLL)
