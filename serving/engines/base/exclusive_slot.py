"""One inference at a time, for models that take no more. Waiting for one's turn is not hanging:

- who waits behind an inference leaves as soon as nobody waits for him any more; but an inference that goes on for long
  after its own caller has left hangs, and then whoever waits behind it hangs with it (the server counts such callers:
  many of them, and the model needs a restart)
- who holds the turn and does not take the parts of the answer loses it to one who waits
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

PATIENCE: Final = 10.0  # s that an inference may go on when nobody waits for it any more; then it hangs
TAKEN_WITHIN: Final = 10.0  # s in which a part of an answer is to be taken when others wait for the model


class Held:
    """A turn, as `Turn.taken` gives it; `end` lets go of what was begun in it."""

    __slots__ = ("aside_since", "end", "left_at")

    def __init__(self, end: Callable[[], None]) -> None:
        self.end = end
        self.left_at: float | None = None  # when nobody waited any more
        self.aside_since: float | None = None  # since when a part of the answer waits to be taken


def _nothing() -> None:
    """Of a turn in which nothing is begun that outlives it."""


class Turn:
    """Held by one inference after the other; `monotonic` is a clock in seconds."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._held: Held | None = None

    @contextmanager
    def taken(self, cancellation: Cancellation | None, end: Callable[[], None] = _nothing) -> Iterator[Held]:
        """The turn, when it is free; blocks. Raises Cancelled.

        `end` is called when the turn is given back or lost, by whoever has it then, and raises nothing.
        """
        mine = Held(end)
        lost = self._take(mine, cancellation)
        try:
            if lost is not None:
                lost.end()
            yield mine
        finally:
            self._give_back(mine)

    @contextmanager
    def aside(self, mine: Held) -> Iterator[None]:
        """Around the moment in which a part of the answer is taken. Raises InferenceFailed when the turn was lost."""
        with self._changed:
            mine.aside_since = self._monotonic()
            self._changed.notify_all()  # who waits must know when its patience ends
        yield
        if not self._keep(mine):
            raise InferenceFailed(f"no part of the answer was taken for {TAKEN_WITHIN:g} s, and others waited")

    def _take(self, mine: Held, cancellation: Cancellation | None) -> Held | None:
        """Whose turn it was until now, if that one has lost it."""
        with self._changed:
            if cancellation is not None:
                cancellation.on_cancel(self._look_again)
            while (other := self._held) is not None:
                rest = self._rest_of(other)
                if rest is not None and rest <= 0:
                    break
                if not self._hangs(other):
                    self._check(cancellation)
                self._changed.wait(rest)
            self._check(cancellation)
            self._held = mine
        if cancellation is not None:
            cancellation.on_cancel(partial(self._left, mine))
        return other

    def _give_back(self, mine: Held) -> None:
        if self._keep(mine):
            mine.end()
            with self._changed:
                self._held = None
                self._changed.notify()

    def _keep(self, mine: Held) -> bool:
        """Nobody takes it away any more; whether it still is mine."""
        with self._changed:
            mine.aside_since = None
            return self._held is mine

    def _rest_of(self, other: Held) -> float | None:
        """Seconds until `other` loses its turn; None when it infers."""
        return None if other.aside_since is None else other.aside_since + TAKEN_WITHIN - self._monotonic()

    def _hangs(self, other: Held) -> bool:
        return other.left_at is not None and self._monotonic() - other.left_at > PATIENCE

    def _check(self, cancellation: Cancellation | None) -> None:
        if cancellation is not None and cancellation.cancelled:
            self._changed.notify()  # that the turn is free may have been said to this one alone
            raise Cancelled("the inference was cancelled")

    def _left(self, mine: Held) -> None:
        mine.left_at = self._monotonic()

    def _look_again(self) -> None:
        with self._changed:
            self._changed.notify_all()
