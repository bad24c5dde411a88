"""Python's garbage collector in a process that keeps much and leaves few cycles behind."""

from __future__ import annotations

import gc

YOUNG = 50_000
"""Objects made since the last collection that begin one; Python's own 700 is reached by two events, and each collection
looks at all that is under way: a sixth of the time of the event webhook. Cycles wait for some MB more."""
MIDDLE = 50
"""Collections of those before one of what outlived one of them; Python's own 10 looks at each event once more."""


def spare_what_is_there() -> None:
    """Collect once, never look at what is left again, and look at newer objects less often. For when all is loaded."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, gc.get_threshold()[2])
