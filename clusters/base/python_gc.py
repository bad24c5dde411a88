"""Python's garbage collector in a process that keeps much and leaves few cycles behind."""

from __future__ import annotations

import gc
from collections.abc import Callable

from clusters.base.clock import Clock

YOUNG = 50_000
"""Objects made since the last collection that begin one; Python's own 700 is reached by two events, and each collection
looks at all that is under way: a sixth of the time of the event webhook."""
MIDDLE = 50
"""Collections of those before one of what outlived one of them; Python's own 10 looks at each event once more."""
EVERY = 60.0
"""s between two full collections at least: one that has little to do would come to its 50 000 objects in hours."""
SHARE = 0.001
"""Of the time, that they take at most: with many objects they are less frequent."""


def spare_what_is_there() -> None:
    """Collect once, never look at what is left again, and look at newer objects less often. For when all is loaded."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, gc.get_threshold()[2])


async def collect_seldom(clock: Clock, collect: Callable[[], object] = gc.collect) -> None:
    """Full collections until cancelled, which empty the interpreter's lists of free tuples and the like, too.

    Without them a platform that is asked little grew by 24 MB in an hour; with them by 6.
    """
    wait = EVERY
    while True:
        await clock.sleep(wait)
        began = clock.monotonic()
        collect()
        wait = max(EVERY, (clock.monotonic() - began) / SHARE)
