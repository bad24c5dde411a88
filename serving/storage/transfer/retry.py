"""Trying again: what fails for a while (a broken connection, a store that is overloaded) may go well a little later."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from serving.storage.base.errors import Interrupted, Refused
from serving.storage.transfer.deadline import Deadline
from serving.storage.transfer.limits import DownloadLimits

log = logging.getLogger(__name__)

T = TypeVar("T")

_TRANSIENT: Final = frozenset({408, 429, 500, 502, 503, 504})
_LONGEST_WISH: Final = 60.0  # s; of what a server may ask for by Retry-After


class Retry:
    """Attempts with pauses between them that double, for as long as the deadline spares."""

    def __init__(self, limits: DownloadLimits, deadline: Deadline, sleep: Callable[[float], None]) -> None:
        self._limits = limits
        self._deadline = deadline
        self._sleep = sleep

    def run(self, attempt: Callable[[], T], received: Callable[[], int] = lambda: 0) -> T:
        """What `attempt` returns; `received` tells how many bytes have come: with new ones the count begins anew.

        Raises what the last attempt did.
        """
        tries, most = 0, received()
        while True:
            try:
                return attempt()
            except (Interrupted, Refused) as error:
                if received() > most:
                    tries, most = 0, received()
                pause = max(self._limits.pause * 2**tries, _wish(error))
                final = isinstance(error, Refused) and error.status not in _TRANSIENT
                if final or tries >= self._limits.retries or pause >= self._deadline.left:
                    raise
                log.warning("%s; tried again in %g s", error, pause)
            self._sleep(pause)
            tries += 1


def _wish(error: Interrupted | Refused) -> float:
    return min(error.after, _LONGEST_WISH) if isinstance(error, Refused) else 0.0
