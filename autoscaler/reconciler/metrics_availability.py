"""Report missing metrics: an Event `MetricsUnavailable` on the PodAutoscaler, another at the end, and a condition
meanwhile.

    no ready replica reports its load                     no scale-down and no scale to zero; requests queued at
                                                          activators still add replicas
    activators do not answer, and it might go to zero     it keeps a replica

Each outage is recorded once. A new process records it again, which increases the Event's count.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Final

from autoscaler.reconciler.status import UNAVAILABLE
from clusters.base.clock import Clock
from clusters.base.objects import POD_AUTOSCALER, Key, Object, uid_of
from clusters.runtime.recorder import Recorder

AVAILABLE: Final = "MetricsAvailable"
AFTER: Final = 10.0
"""Seconds without a response of any replica until an Event is recorded: a few failed ticks are normal."""
REPLICAS: Final = (
    "no replica reports its load, so none is removed: check that the autoscaler can reach their ports 9095 and 9090"
)
ACTIVATORS: Final = (
    "Knative's activators do not report queued requests, so one replica remains: "
    "`knodel doctor --kube-context NAME` names the missing setting"
)


class MetricsAvailability:
    """Follows the ticks; `record_event` writes changes. `signal_available` returns whether activators answer."""

    def __init__(
        self, recorder: Recorder, clock: Clock, signal_available: Callable[[], bool], after: float = AFTER
    ) -> None:
        self._recorder = recorder
        self._clock = clock
        self._hears = signal_available
        self._after = after
        self._since: dict[Key, float] = {}
        self._reported: dict[Key, tuple[str, str]] = {}  # uid and last message

    def observe(self, scraped: Iterable[Key], answered: Container[Key]) -> list[Key]:
        """Record which revisions a tick has read and which have answered. Return those with an Event to record.

        A revision that is not read any more has no ready replica, so its metrics are not missing.
        """
        now, keys = self._clock.monotonic(), dict.fromkeys(scraped)
        changed = []
        for key in [*keys, *(self._since.keys() - keys)]:
            if key in answered or key not in keys:
                self._since.pop(key, None)
            else:
                self._since.setdefault(key, now)
            silent, reported = self._is_silent(key), self._reported.get(key, ("", ""))[1]
            if silent != (reported == REPLICAS) and (silent or reported == REPLICAS):
                changed.append(key)
        return changed

    async def record_event(self, key: Key, pod_autoscaler: Object, *, may_be_zero: bool) -> None:
        """Record a change as an Event; `may_be_zero`: its policy allows no replica. Raises the cluster's errors."""
        uid, message = uid_of(pod_autoscaler), self.message(key, may_be_zero=may_be_zero)
        before = self._reported.get(key, (uid, ""))
        reported = before[1] if before[0] == uid else ""
        if message == reported:
            return
        if message:
            await self._recorder.event(POD_AUTOSCALER, pod_autoscaler, "Warning", UNAVAILABLE, message)
        else:
            await self._recorder.event(
                POD_AUTOSCALER, pod_autoscaler, "Normal", AVAILABLE, "metrics are available again"
            )
        self._reported[key] = (uid, message)

    def forget(self, key: Key) -> None:
        """Delete a revision that is gone."""
        self._since.pop(key, None)
        self._reported.pop(key, None)

    def message(self, key: Key, *, may_be_zero: bool) -> str:
        """Return which metrics are missing, and the consequence; empty if all are available."""
        if self._is_silent(key):
            return REPLICAS
        return ACTIVATORS if may_be_zero and not self._hears() else ""

    def _is_silent(self, key: Key) -> bool:
        since = self._since.get(key)
        return since is not None and self._clock.monotonic() - since >= self._after
