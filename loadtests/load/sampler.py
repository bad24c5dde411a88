"""Sample a value once a second during a load, in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

EVERY = 1.0  # s


class Sampler:
    """Collect (time of the monotonic clock, value) while the context is active. Failed samples are omitted."""

    def __init__(self, sample: Callable[[], float], every: float = EVERY) -> None:
        self.seen: list[tuple[float, float]] = []
        self._sample, self._every = sample, every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def since(self, began: float) -> list[tuple[float, float]]:
        """Return the samples, with times relative to this time."""
        return [(moment - began, value) for moment, value in self.seen if moment >= began]

    def _run(self) -> None:
        while not self._over.wait(self._every):
            try:
                value = self._sample()
            except (OSError, SystemExit, ValueError, KeyError):  # the control API is unavailable for a moment
                continue
            self.seen.append((time.monotonic(), value))
