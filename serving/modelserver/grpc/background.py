"""Threads of gRPC's own that do not interrupt the event loop.

Its core wakes a thread of its own for each step of a call, and each of them would take the processor from the event
loop in the midst of an inference, and hand it back: eight switches of threads for one call where one core is all there
is. As batch threads (sched(7), SCHED_BATCH) they wait until the loop has nothing to do. No right is needed for it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def batch_threads() -> Iterator[None]:
    """Threads that begin here, and theirs, are batch threads; where the system allows none, they are as all others."""
    try:
        before = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except (AttributeError, OSError):  # not Linux, or a sandbox forbids it
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)
