"""How long a failed event waits for its next try, and when it has had enough of them. Pure."""

from __future__ import annotations

from typing import Final

from clusters.base.backoff import Backoff

MOST_ATTEMPTS: Final = 8
"""Tries of one event; then it is a dead letter, listed and replayed by people."""
FIRST_WAIT: Final = 1.0
"""s after the first failure: what fails for a moment (a conflict, a restart) is well again."""
LONGEST_WAIT: Final = 300.0
"""s before the last try. In between the waits grow by one factor, 2.6; all of them take eight minutes."""
_BACKOFF: Final = Backoff(FIRST_WAIT, LONGEST_WAIT, factor=(LONGEST_WAIT / FIRST_WAIT) ** (1 / (MOST_ATTEMPTS - 2)))


def wait_after(attempts: int) -> float | None:
    """Seconds until the next try after so many failures; None when there is none."""
    if attempts >= MOST_ATTEMPTS:
        return None
    return _BACKOFF.delay(attempts - 1)
