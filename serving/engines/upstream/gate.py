"""The requests in an engine and its sleep: it falls asleep only without requests, and gets none while it sleeps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Clock = Callable[[], float]


class Gate:
    """A gate that each request passes: `enter` before anything is sent, `leave` afterwards. Thread-safe.

    An engine sleeps and wakes in `changing`, one thread at a time. No request enters meanwhile.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._requests = 0
        self._since = clock()
        self._changes = False
        self._asleep = False

    @property
    def asleep(self) -> bool:
        """Whether the engine was put to sleep, and not woken since."""
        return self._asleep

    @property
    def busy(self) -> bool:
        """Whether there are requests."""
        return self._requests > 0

    def enter(self) -> bool:
        """Count a request; return False, and count none, while the engine sleeps or changes. Does not block."""
        with self._changed:
            if self._asleep or self._changes:
                return False
            self._requests += 1
            return True

    def leave(self) -> None:
        """End a request."""
        with self._changed:
            self._requests -= 1
            self._since = self._clock()

    def idle(self) -> float:
        """Return the seconds since the last request, or since the engine woke; 0 while there are requests."""
        with self._changed:
            return 0.0 if self._requests or self._changes or self._asleep else self._clock() - self._since

    @contextmanager
    def sleeping(self) -> Iterator[bool]:
        """Keep requests out while the block puts the engine to sleep; False: there are requests, so it must not.

        The engine counts as asleep afterwards even if the block failed: it may sleep, and to wake it harms nothing.
        """
        with self._changed:
            free = not (self._requests or self._changes or self._asleep)
            self._changes = free or self._changes
        try:
            yield free
        finally:
            if free:
                self._end(asleep=True)

    @contextmanager
    def waking(self, needed: bool) -> Iterator[bool]:
        """Wait for another thread's change, and keep requests out while the block wakes the engine.

        False: it is awake already, unless it is `needed` for another reason. It stays asleep if the block fails.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._changes)
            needed = needed or self._asleep
            self._changes = needed
        if not needed:
            yield False
            return
        asleep = True
        try:
            yield True
            asleep = False
        finally:
            self._end(asleep)

    def restarted(self) -> None:
        """Record that the engine runs anew, awake."""
        self._end(asleep=False)

    def _end(self, asleep: bool) -> None:
        with self._changed:
            self._changes, self._asleep = False, asleep
            self._since = self._clock()
            self._changed.notify_all()
