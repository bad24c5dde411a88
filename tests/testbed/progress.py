"""Lines of progress: seconds since the start, and what happened."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

Report = Callable[[str], object]
"""Takes one line that tells what happens; may be called by several threads."""


class Progress:
    """The Report of the command: lines of several threads do not mix."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._lock = threading.Lock()

    def __call__(self, text: str) -> None:
        with self._lock:
            print(f"[{time.monotonic() - self._start:6.1f} s] {text}", file=sys.stderr, flush=True)
