"""The moment at which an artifact has to be there, whatever servers and other processes do."""

from __future__ import annotations

import time
from collections.abc import Callable

from serving.storage.base.errors import Interrupted


class Deadline:
    """The artifact `name` has to be there `seconds` after this is made, by the clock `monotonic`."""

    def __init__(self, name: str, seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._seconds = seconds
        self._monotonic = monotonic
        self._end = monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds; negative once it has passed."""
        return self._end - self._monotonic()

    def check(self) -> None:
        """Raises Interrupted once it has passed."""
        if self.left <= 0:
            raise Interrupted(f"{self._name}: cannot be downloaded: not complete after {self._seconds:g} s")
