"""Schedule gRPC's own threads so that they do not preempt the event loop."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def batch_threads() -> Iterator[None]:
    """Schedule threads that start meanwhile, and their children, as batch threads (sched(7), SCHED_BATCH).

    gRPC's core wakes a thread for each step of a call. Each of them would preempt the event loop during an inference:
    eight context switches for one call on a single core. Batch threads wait until the loop is idle, and need no
    privilege. Does nothing where the system does not support them.
    """
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
