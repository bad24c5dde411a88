"""Retries of requests that failed for a passing reason, and fewer requests at once for a server that is overloaded."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from clusters.base.backoff import Backoff
from serving.storage.base.errors import Interrupted, Refused
from serving.storage.transfer.deadline import Deadline
from serving.storage.transfer.limits import DownloadLimits

log = logging.getLogger(__name__)

T = TypeVar("T")

_TRANSIENT: Final = frozenset({408, 429, 500, 502, 503, 504})
_OVERLOADED: Final = frozenset({429, 503})
_LONGEST_RETRY_AFTER: Final = 60.0  # s


class Slots:
    """Bounds how many requests run at the same time. Thread-safe."""

    def __init__(self, limit: int, deadline: Deadline) -> None:
        self._limit = limit
        self._deadline = deadline
        self._used = 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def take(self) -> Iterator[None]:
        """Wait for a free slot and keep it for the `with` block. Raises Interrupted at the deadline."""
        with self._changed:
            while self._used >= self._limit:
                self._deadline.check()
                self._changed.wait(self._deadline.left)
            self._used += 1
        try:
            yield
        finally:
            with self._changed:
                self._used -= 1
                self._changed.notify()

    def reduce(self) -> bool:
        """Lower the limit by one; return False when the caller, who has a slot, is the only one that has."""
        with self._changed:
            if self._limit == 1 or self._used == 1:
                return False
            self._limit -= 1
            return True

    def wake(self) -> None:
        """Let waiting threads check the deadline, which was cancelled."""
        with self._changed:
            self._changed.notify_all()


class Retry:
    """Runs requests with exponential back-off until the deadline. Thread-safe.

    Each sign of overload (429, 503, a connection that brings nothing) lowers the number of requests at once by one. So
    a server that serves one caller at a time gets one request at a time, as it does for a single file.
    """

    def __init__(self, limits: DownloadLimits, deadline: Deadline, sleep: Callable[[float], None] | None) -> None:
        self.slots = Slots(max(1, limits.files_at_once), deadline)
        self._retries = limits.retries
        self._backoff = Backoff(limits.pause, math.inf)  # the deadline bounds it
        self._deadline = deadline
        self._sleep = sleep or deadline.sleep

    def run(self, attempt: Callable[[], T], received: Callable[[], int] = lambda: 0) -> T:
        """Return the result of `attempt`, which is retried after Interrupted and transient HTTP errors.

        `received` returns the bytes so far: an attempt that brought new ones resets the number of retries. Raises the
        error of the last attempt.
        """
        retries, most = 0, received()
        while True:
            with self.slots.take():
                try:
                    return attempt()
                except (Interrupted, Refused) as error:
                    stalled = received() <= most
                    if not stalled:
                        retries, most = 0, received()
                    pause = max(self._backoff.delay(retries), _retry_after(error))
                    final = isinstance(error, Refused) and error.status not in _TRANSIENT
                    if final or retries >= self._retries or pause >= self._deadline.left:
                        raise
                    log.warning("%s; retrying in %g s", error, pause)
                    overloaded = error.status in _OVERLOADED if isinstance(error, Refused) else stalled
                    retries = 0 if overloaded and self.slots.reduce() else retries + 1
                self._sleep(pause)  # in the slot: with one slot left nothing else is sent meanwhile


def _retry_after(error: Interrupted | Refused) -> float:
    return min(error.after, _LONGEST_RETRY_AFTER) if isinstance(error, Refused) else 0.0
