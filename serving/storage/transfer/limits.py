"""Limits of transfers: times, retries, files at once, and the deadline of an artifact."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from serving.storage.base.errors import TransferInterrupted


@dataclass(frozen=True, slots=True)
class TransferLimits:
    """Limits of one artifact's download or upload; times in seconds.

    connect         time for one connection attempt
    silence         longest time without a byte
    total           time for the whole artifact, with waiting and retries; a model's startup deadline is rarely longer
    redirects       redirects that one request follows
    retries         consecutive retries without a new byte
    pause           time before the first retry; doubles with each further one
    files_at_once   files of one artifact that are transferred at the same time. Each takes a thread, a connection, two
                    open files and about 0.5 MiB of memory. A server that answers 429 or 503 gets fewer at once.
    """

    connect: float = 10.0
    silence: float = 30.0
    total: float = 3600.0
    redirects: int = 5
    retries: int = 4
    pause: float = 1.0
    files_at_once: int = 8


class TransferDeadline:
    """The deadline of the artifact `name`, `seconds` after construction by the clock `monotonic`. Thread-safe.

    Its errors end with what cannot be done: `downloaded` or `uploaded`.
    """

    def __init__(
        self,
        name: str,
        seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        action: str = "downloaded",
    ) -> None:
        self._failure = f"{name}: cannot be {action}"
        self._seconds = seconds
        self._monotonic = monotonic
        self._end = monotonic() + seconds
        self._cancelled = threading.Event()

    @property
    def left(self) -> float:
        """The remaining seconds; 0 or less once the deadline has passed or was cancelled."""
        return 0.0 if self._cancelled.is_set() else self._end - self._monotonic()

    def check(self) -> None:
        """Raise TransferInterrupted once the deadline has passed or was cancelled."""
        if self._cancelled.is_set():
            raise TransferInterrupted(f"{self._failure}: cancelled, since one of its files failed")
        if self.left <= 0:
            raise TransferInterrupted(f"{self._failure}: not complete after {self._seconds:g} s")

    def cancel(self) -> None:
        """End the transfer in all threads: from now on `check` raises and `sleep` returns at once."""
        self._cancelled.set()

    def sleep(self, seconds: float) -> None:
        """Sleep for so many seconds, or until the deadline is cancelled."""
        self._cancelled.wait(seconds)
