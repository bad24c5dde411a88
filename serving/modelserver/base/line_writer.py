"""Write lines of text from a thread of its own, so that callers never wait for a slow reader."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TextIO

MAX_LINES: Final = 10_000  # in the queue, some MB; more are dropped while a reader stalls
PAUSE: Final = 0.02  # s between two writes, so that lines of a busy server share one write


class LineWriter:
    """Writes lines to `out` in order. `lost` makes the line that reports the number of dropped lines."""

    def __init__(self, out: TextIO, lost: Callable[[int], str]) -> None:
        self._out = out
        self._lost = lost
        self._waiting: deque[str] = deque()
        self._dropped = 0
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def put(self, line: str) -> None:
        """Enqueue `line`, which includes its newline. Drops it if the queue is full."""
        with self._changed:
            if len(self._waiting) >= MAX_LINES:
                self._dropped += 1
                return
            self._waiting.append(line)
            if len(self._waiting) == 1:
                self._changed.notify()
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="access-log", daemon=True)
                with suppress(RuntimeError):  # the system has no more threads now: the next line tries again
                    thread.start()
                    self._thread = thread

    def close(self, timeout: float) -> None:
        """Write the queued lines. Blocks for at most `timeout` seconds."""
        self._closing.set()
        with self._changed:
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout)

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closing.is_set():
                    self._changed.wait()
                lines = [*self._waiting]
                self._waiting.clear()
                if self._dropped:
                    lines.append(self._lost(self._dropped))
                    self._dropped = 0
            if not lines:
                return
            try:
                self._out.write("".join(lines))
                self._out.flush()
            except (OSError, ValueError):  # the reader closed it
                return
            self._closing.wait(PAUSE)
