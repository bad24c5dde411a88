"""Commands of the testbed wait for each other where they would change the same thing."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from tests.testbed.progress import Report


@contextlib.contextmanager
def alone(path: Path, report: Report) -> Iterator[None]:
    """Hold the lock file; who comes second reports that, and waits. A process that ends leaves no lock behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"another command of the testbed is at work ({path.name}): waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
