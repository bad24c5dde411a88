"""When to look again at a Model that the cluster refused something."""

from __future__ import annotations

from clusters.base.backoff import Backoff
from clusters.base.objects import Key

FIRST_LOOK = 1.0
"""s: an API server that has just started anew refuses everything for a moment, until it knows the grants."""
LAST_LOOK = 30.0
"""s: a quota, a flag or somebody else's object may be out of the way then."""
_BACKOFF = Backoff(FIRST_LOOK, LAST_LOOK)


class Patience:
    """Longer and longer intervals for each Model that stays refused."""

    def __init__(self) -> None:
        self._refusals: dict[Key, int] = {}

    def look_again(self, key: Key) -> float:
        """Seconds until the next look."""
        refusals = self._refusals.get(key, 0)
        self._refusals[key] = refusals + 1
        return _BACKOFF.delay(refusals)

    def forget(self, key: Key) -> None:
        """Nothing is refused any more, or the Model is gone."""
        self._refusals.pop(key, None)
