"""Retry requests after transient failures, and send fewer requests at once to an overloaded server."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from clusters.base.backoff import Backoff
from serving.storage.base.errors import HttpStatusError, TransferInterrupted
from serving.storage.transfer.limits import TransferDeadline, TransferLimits

log = logging.getLogger(__name__)

T = TypeVar("T")

_TRANSIENT: Final = frozenset({408, 429, 500, 502, 503, 504})
_OVERLOADED: Final = frozenset({429, 503})


class Slots:
    """Bound the number of requests at the same time. Thread-safe."""

    def __init__(self, limit: int, deadline: TransferDeadline) -> None:
        self._limit = limit
        self._deadline = deadline
        self._used = 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def acquire(self) -> Iterator[None]:
        """Wait for a free slot and hold it during the `with` block. Raises TransferInterrupted at the deadline."""
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
        """Lower the limit by one; return False if it is 1 or only the caller has a slot."""
        with self._changed:
            if self._limit == 1 or self._used == 1:
                return False
            self._limit -= 1
            return True

    def notify_all(self) -> None:
        """Make waiting threads check the deadline again, after its cancellation."""
        with self._changed:
            self._changed.notify_all()


class Retry:
    """Run requests with exponential back-off until the deadline. Thread-safe.

    Each sign of overload (429, 503, a connection without a new byte) lowers the number of requests at once by one. So
    a server that serves one request at a time gets one at a time.
    """

    def __init__(
        self, limits: TransferLimits, deadline: TransferDeadline, sleep: Callable[[float], None] | None
    ) -> None:
        self.slots = Slots(max(1, limits.files_at_once), deadline)
        self._retries = limits.retries
        self._backoff = Backoff(limits.pause, math.inf)  # bounded by the deadline
        self._deadline = deadline
        self._sleep = sleep or deadline.sleep

    def run(self, attempt: Callable[[], T], received: Callable[[], int] = lambda: 0) -> T:
        """Return the result of `attempt`; retry after TransferInterrupted and transient HTTP errors.

        `received` returns the bytes so far. An attempt with new bytes resets the number of retries. Raises the error of
        the last attempt.
        """
        retries, most = 0, received()
        while True:
            with self.slots.acquire():
                try:
                    return attempt()
                except (TransferInterrupted, HttpStatusError) as error:
                    stalled = received() <= most
                    if not stalled:
                        retries, most = 0, received()
                    status, after = 0, 0.0
                    if isinstance(error, HttpStatusError):
                        status, after = error.status, error.retry_after
                    pause = max(self._backoff.delay(retries), after)
                    final = status > 0 and status not in _TRANSIENT
                    if final or retries >= self._retries or pause >= self._deadline.left:
                        raise
                    log.warning("%s; retrying in %g s", error, pause)
                    overloaded = status in _OVERLOADED if status else stalled
                    retries = 0 if overloaded and self.slots.reduce() else retries + 1
                self._sleep(pause)  # in the slot, so that the last slot sends nothing meanwhile
