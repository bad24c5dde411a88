"""How long a container that ended waits for its next start: the kubelet's CrashLoopBackOff."""

from __future__ import annotations

from typing import Final

FIRST_BACKOFF: Final = 10.0  # s; as Kubernetes: kubelet `backOffPeriod`
LARGEST_BACKOFF: Final = 300.0  # s; as Kubernetes: `MaxContainerBackOff`
HEALTHY_AFTER: Final = 600.0  # s; a container that ran this long starts anew at no delay (2 × MaxContainerBackOff)


class RestartBackOff:
    """Delays 0, first, 2·first, 4·first … largest; 0 again after a run of `HEALTHY_AFTER`."""

    def __init__(self, first: float = FIRST_BACKOFF, largest: float = LARGEST_BACKOFF) -> None:
        self._first = first
        self._largest = largest
        self._next = 0.0

    def ended(self, ran: float) -> float:
        """The seconds to wait now that a run of `ran` seconds has ended."""
        delay = 0.0 if ran >= HEALTHY_AFTER else self._next
        self._next = self._first if delay == 0 else min(delay * 2, self._largest)
        return delay
