"""Looks at something once a second beside a load, in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

EVERY = 1.0  # s


class Watch:
    """(moment of the monotonic clock, value) for as long as the context lasts; a look that fails is none."""

    def __init__(self, look: Callable[[], float], every: float = EVERY) -> None:
        self.seen: list[tuple[float, float]] = []
        self._look, self._every = look, every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def since(self, began: float) -> list[tuple[float, float]]:
        """What was seen, in seconds since then."""
        return [(moment - began, value) for moment, value in self.seen if moment >= began]

    def _run(self) -> None:
        while not self._over.wait(self._every):
            try:
                value = self._look()
            except (OSError, SystemExit, ValueError, KeyError):  # the control API is gone for a moment
                continue
            self.seen.append((time.monotonic(), value))
