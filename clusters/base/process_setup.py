"""Set up a process of ours: a garbage collector for many long-lived objects, no core dumps, an end with its parent."""

from __future__ import annotations

import fcntl
import gc
import os
import resource
import select
import sys
from collections.abc import Callable

from clusters.base.clock import Clock

YOUNG = 50_000
"""New objects that trigger a collection of the young generation. Two events make more than Python's default of 700, and
each collection traverses all work in progress, which took a sixth of the event webhook's time."""
MIDDLE = 50
"""Young collections before one of the middle generation. Python's default of 10 traverses each event again."""
EVERY = 60.0
"""Minimum s between two full collections. An idle process would make 50 000 objects only in hours."""
SHARE = 0.001
"""Maximum share of the time for full collections: with many objects they are less frequent."""


def freeze_loaded_objects() -> None:
    """Collect once, exempt the remaining objects, and collect new ones less often. Call it when all is loaded."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, gc.get_threshold()[2])


async def collect_rarely(clock: Clock, collect: Callable[[], object] = gc.collect) -> None:
    """Run full collections until cancelled; they also empty the interpreter's free lists.

    An idle platform grew by 24 MB an hour without them, and by 6 MB with them.
    """
    wait = EVERY
    while True:
        await clock.sleep(wait)
        began = clock.monotonic()
        collect()
        wait = max(EVERY, (clock.monotonic() - began) / SHARE)


def disable_core_dumps() -> None:
    """Disable core dumps of this process and of the processes that it starts.

    Their memory holds tokens, storage keys, models and requests. The kernel pipes a core dump to a collector (`|` in
    kernel.core_pattern) despite this limit, see core(5). systemd's collector discards the dump of such a process;
    other collectors follow their own settings.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def end_with_pipe(pipe: int, *, group: bool = False) -> None:
    """Let the kernel end this process when all writing ends of `pipe` are closed, even if this process hangs.

    Nothing may be written to the pipe. With `group` the whole process group ends, which this process must lead. The
    kernel sends SIGIO, whose default action is to terminate. PR_SET_PDEATHSIG is not used, because it watches the
    thread that started this process, not the process of that thread.
    """
    fcntl.fcntl(pipe, fcntl.F_SETOWN, -os.getpgrp() if group else os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    closed = select.poll()
    closed.register(pipe, select.POLLHUP)
    if closed.poll(0):  # they were closed before the flag was set
        sys.exit()
