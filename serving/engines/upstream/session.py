"""Signal all processes of a session: a program may begin process groups of its own, and seldom a session."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def signal_session(session: int, number: int) -> None:
    """Send a signal to every process of the session but this one (Linux, by /proc)."""
    me = os.getpid()
    names = [path.name for path in Path("/proc").iterdir()] if Path("/proc").is_dir() else []
    for name in names:
        with contextlib.suppress(OSError, ValueError):  # it has ended, or the name is not that of a process
            if int(name) != me and os.getsid(int(name)) == session:
                os.kill(int(name), number)
