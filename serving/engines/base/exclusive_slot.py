"""One inference at a time, for models that do not support concurrent calls.

Callers that wait for the slot are not hanging:

- A waiting caller that is cancelled leaves at once. But an inference that runs for longer than `HANG_AFTER` after its
  own cancellation hangs, and then the callers that wait behind it hang too. The server counts them: with too many it
  needs a restart.
- A holder whose reader does not take the parts of a streamed response loses the slot to a waiting caller.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from serving.engines.base.engine import Cancellation
from serving.engines.base.errors import Cancelled, InferenceFailed

HANG_AFTER: Final = 10.0  # s that an inference may run after its cancellation before it counts as hanging
STALL_TIMEOUT: Final = 10.0  # s for a reader to take a part of a response while other callers wait for the model


class SlotHolder:
    """An inference that holds the slot; `cleanup` ends it."""

    __slots__ = ("cancelled_at", "cleanup", "sending_since")

    def __init__(self, cleanup: Callable[[], None]) -> None:
        self.cleanup = cleanup
        self.cancelled_at: float | None = None
        self.sending_since: float | None = None  # while a part of the response waits for its reader


class ExclusiveSlot:
    """A lock that one inference holds at a time; `monotonic` is a clock in seconds."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._holder: SlotHolder | None = None

    @contextmanager
    def acquire(
        self, cancellation: Cancellation | None, cleanup: Callable[[], None] = lambda: None
    ) -> Iterator[SlotHolder]:
        """Hold the slot inside the block; waits until it is free. Raises Cancelled.

        `cleanup` is called when the slot is released, or by the caller that takes it over. It must not raise.
        """
        holder = SlotHolder(cleanup)
        stalled = self._acquire(holder, cancellation)
        try:
            if stalled is not None:
                stalled.cleanup()
            yield holder
        finally:
            if self._resume(holder):
                holder.cleanup()
                with self._changed:
                    self._holder = None
                    self._changed.notify()

    @contextmanager
    def sending(self, holder: SlotHolder) -> Iterator[None]:
        """Allow waiting callers to take over the slot if the block takes longer than `STALL_TIMEOUT`.

        Raises InferenceFailed after the block when they did.
        """
        with self._changed:
            holder.sending_since = self._monotonic()
            self._changed.notify_all()  # waiting callers compute their timeout anew
        yield
        if not self._resume(holder):
            raise InferenceFailed(
                f"no part of the response was read for {STALL_TIMEOUT:g} s while other requests waited"
            )

    def _acquire(self, holder: SlotHolder, cancellation: Cancellation | None) -> SlotHolder | None:
        """Wait for the slot and return the stalled holder from which it was taken, if any."""
        with self._changed:
            if cancellation is not None:
                cancellation.on_cancel(self._notify_waiters)
            while (other := self._holder) is not None:
                remaining = None
                if other.sending_since is not None:
                    remaining = other.sending_since + STALL_TIMEOUT - self._monotonic()
                    if remaining <= 0:
                        break
                hangs = other.cancelled_at is not None and self._monotonic() - other.cancelled_at > HANG_AFTER
                if not hangs:
                    self._check(cancellation)
                self._changed.wait(remaining)
            self._check(cancellation)
            self._holder = holder
        if cancellation is not None:
            cancellation.on_cancel(partial(self._record_cancellation, holder))
        return other

    def _resume(self, holder: SlotHolder) -> bool:
        """End the time in which the slot may be taken over; return whether `holder` still has it."""
        with self._changed:
            holder.sending_since = None
            return self._holder is holder

    def _check(self, cancellation: Cancellation | None) -> None:
        if cancellation is not None and cancellation.cancelled:
            self._changed.notify()  # this thread may have been the only one to be notified of the free slot
            raise Cancelled("the inference was cancelled")

    def _record_cancellation(self, holder: SlotHolder) -> None:
        holder.cancelled_at = self._monotonic()

    def _notify_waiters(self) -> None:
        with self._changed:
            self._changed.notify_all()
