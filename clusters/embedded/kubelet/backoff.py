"""How long a container that ended waits for its next start: the kubelet's CrashLoopBackOff."""

from __future__ import annotations

from typing import Final

from clusters.base.backoff import Backoff

FIRST_BACKOFF: Final = 10.0  # s; as Kubernetes: kubelet `backOffPeriod`
LARGEST_BACKOFF: Final = 300.0  # s; as Kubernetes: `MaxContainerBackOff`
HEALTHY_AFTER: Final = 600.0  # s; a container that ran this long starts anew at no delay (2 × MaxContainerBackOff)


class RestartBackOff:
    """Delays 0, first, 2·first, 4·first … largest; 0 again after a run of `HEALTHY_AFTER`."""

    def __init__(self, first: float = FIRST_BACKOFF, largest: float = LARGEST_BACKOFF) -> None:
        self._backoff = Backoff(first, largest)
        self._ended = 0  # runs in a row, each shorter than `HEALTHY_AFTER`

    def ended(self, ran: float) -> float:
        """The seconds to wait now that a run of `ran` seconds has ended."""
        if ran >= HEALTHY_AFTER:
            self._ended = 0
        delay = self._backoff.delay(self._ended - 1) if self._ended else 0.0
        self._ended += 1
        return delay
