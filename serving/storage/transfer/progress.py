"""How far a download is, for whoever shows it."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int | None], None]
"""Is told the bytes that have come, and how many it will be (None: not known yet); from the fetching thread."""


def nobody_looks(received: int, total: int | None) -> None:
    """A `Progress` that is not shown."""


class Whole:
    """One progress for many files that come after each other; `total` bytes are expected of all."""

    def __init__(self, report: Progress, total: int | None) -> None:
        self._report = report
        self._total = total
        self._before = 0
        self._now = 0

    def file(self, received: int, total: int | None) -> None:
        """The `Progress` of the file that comes now."""
        self._now = received
        self._report(self._before + received, self._total)

    def next(self) -> None:
        """The next file comes."""
        self._before += self._now
        self._now = 0
