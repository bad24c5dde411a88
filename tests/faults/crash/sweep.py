"""Lives of Models one after the other, the n-th of which sees the platform die at the n-th write of each chapter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.faults.crash.chapters import Chapter
from tests.faults.crash.crashing import FAILED, LOOK_EVERY, CrashingMachine, quietly
from tests.faults.crash.ledger import Ledger
from tests.faults.crash.view import View, difference, view_of
from tests.faults.kit.crash import When
from tests.platform.test_life import Prober
from tests.testbed.waiting import becomes

LINGER = 0.4  # s for a chapter's last writes, which change nothing that counts


@dataclass
class Told:
    """A chapter without a crash: how many writes it took, and what stood at its end."""

    writes: int
    view: View


@dataclass
class Sweep:
    """Lives on one machine, and how they are without crashes."""

    here: CrashingMachine
    chapters: Sequence[Chapter]
    told: list[Told] = field(default_factory=list)
    crashes: int = 0
    slowest: float = 0.0  # s until the same objects stood again

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.here.folder)

    def without_crashes(self, life: str) -> None:
        """The life that others are compared with."""
        for chapter in self.chapters:
            self.here.count()
            with self._asked(chapter, life):
                chapter.send(self.here, life)
                quietly(self.here, chapter.rest)
                self.ledger.follow()
            self.told.append(Told(self.here.counted, view_of(self.ledger, life)))
        self.here.countdown.disarm()

    @property
    def writes(self) -> list[int]:
        """Of each chapter in which a crash can come."""
        return [told.writes for told, chapter in zip(self.told, self.chapters, strict=True) if not chapter.spared]

    def with_crashes(self, life: str, write: int, when: When) -> None:
        """A life with a crash at that write of every chapter that has so many."""
        for chapter, told in zip(self.chapters, self.told, strict=True):
            with self._asked(chapter, life):
                self._chapter(chapter, life, told, write, when)

    def _chapter(self, chapter: Chapter, life: str, told: Told, write: int, when: When) -> None:
        armed = write <= told.writes and not chapter.spared
        if armed:
            self.here.arm(write, when)
        answered, crashed = False, False
        since = time.monotonic()
        settled: float | None = None
        while True:
            if self.here.has_ended():
                crashed, since = True, time.monotonic()
                self.here.serve()
            answered = answered or self._send(chapter, life)
            self.ledger.follow()
            found = view_of(self.ledger, life)
            now = time.monotonic()
            if answered and found == told.view:
                settled = settled or now
                struck = not self.here.countdown.left  # it is about to end where that was not seen yet
                if crashed or not armed or (not struck and now > settled + LINGER):
                    break
            else:
                settled = None
            where = f"{life}: {chapter.name}, write {write} ({when}), crashed: {crashed}"
            assert now < since + chapter.within, f"{where}\n{difference(told.view, found)}"
            time.sleep(LOOK_EVERY)
        self.here.countdown.disarm()
        self.crashes += crashed
        self.slowest = max(self.slowest, time.monotonic() - since if crashed else 0.0)

    def _send(self, chapter: Chapter, life: str) -> bool:
        try:
            chapter.send(self.here, life)
        except FAILED:
            return False
        return True

    @contextmanager
    def _asked(self, chapter: Chapter, life: str) -> Iterator[None]:
        """Callers, where the chapter has some; what a bad version answers them is no failure here."""
        callers = Prober(self.here.port, life) if chapter.asked else None
        try:
            yield
        finally:
            if callers is not None:
                callers.stop()


def eventually(holds: Callable[[], bool], within: float, words: str) -> None:
    """Return once it holds."""
    assert becomes(holds, within, LOOK_EVERY), words
