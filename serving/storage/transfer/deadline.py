"""The deadline of an artifact's download, which also carries its cancellation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from serving.storage.base.errors import Interrupted


class Deadline:
    """The deadline for the artifact `name`: `seconds` after it is made, by the clock `monotonic`. Thread-safe."""

    def __init__(self, name: str, seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._seconds = seconds
        self._monotonic = monotonic
        self._end = monotonic() + seconds
        self._cancelled = threading.Event()

    @property
    def left(self) -> float:
        """The remaining seconds; 0 or less once the deadline has passed or was cancelled."""
        return 0.0 if self._cancelled.is_set() else self._end - self._monotonic()

    def check(self) -> None:
        """Raise Interrupted once the deadline has passed or was cancelled."""
        if self._cancelled.is_set():
            raise Interrupted(f"{self._name}: cannot be downloaded: cancelled, since one of its files failed")
        if self.left <= 0:
            raise Interrupted(f"{self._name}: cannot be downloaded: not complete after {self._seconds:g} s")

    def cancel(self) -> None:
        """End the download in all threads: from now on `check` raises and `sleep` returns at once."""
        self._cancelled.set()

    def sleep(self, seconds: float) -> None:
        """Sleep for so many seconds, or until the deadline is cancelled."""
        self._cancelled.wait(seconds)
