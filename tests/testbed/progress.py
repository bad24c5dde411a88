"""Lines of progress: seconds since the start, and what happened."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO


class Progress:
    """Callable with one line of text; lines of several threads do not mix."""

    def __init__(self, output: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._output = output
        self._clock = clock
        self._start = clock()
        self._lock = threading.Lock()

    def __call__(self, text: str) -> None:
        with self._lock:
            print(f"[{self.seconds:6.1f} s] {text}", file=self._output or sys.stderr, flush=True)

    @property
    def seconds(self) -> float:
        """Seconds since this report began."""
        return self._clock() - self._start
