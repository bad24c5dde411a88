"""Who is not heard, told to people: an Event `MetricsUnavailable` on the PodAutoscaler, one when it is over,
and a condition of its status meanwhile.

    its ready replicas do not say how busy they are       the count stays, zero is out of reach; requests that wait at
                                                          the activators still raise it
    activators do not answer, and it might go to zero     it keeps a replica

Each silence is told once; a process that comes anew tells it again, which counts the Event up.
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
"""s of silence of all replicas before it is told: some ticks that failed are no news."""
REPLICAS: Final = (
    "no replica says how busy it is, so none of them goes; are their ports 9095 and 9090 reachable from the autoscaler?"
)
ACTIVATORS: Final = (
    "Knative's activators do not tell of requests that wait, so a replica stays: `knodel doctor --kube-context NAME` "
    "says which setting is missing"
)


class Silences:
    """Follows the ticks; `tell` writes what is new. `hears`: whether activators are heard."""

    def __init__(self, recorder: Recorder, clock: Clock, hears: Callable[[], bool], after: float = AFTER) -> None:
        self._recorder = recorder
        self._clock = clock
        self._hears = hears
        self._after = after
        self._since: dict[Key, float] = {}
        self._told: dict[Key, tuple[str, str]] = {}  # uid and what was said last

    def tick(self, asked: Iterable[Key], heard: Container[Key]) -> list[Key]:
        """Take whom a tick has asked and who has answered; returns those of which there is something to `tell`.

        Who is asked no more has no ready replica: nobody is silent there.
        """
        now, keys = self._clock.monotonic(), dict.fromkeys(asked)
        news = []
        for key in [*keys, *(self._since.keys() - keys)]:
            if key in heard or key not in keys:
                self._since.pop(key, None)
            else:
                self._since.setdefault(key, now)
            silent, told = self._is_silent(key), self._told.get(key, ("", ""))[1]
            if silent != (told == REPLICAS) and (silent or told == REPLICAS):
                news.append(key)
        return news

    async def tell(self, key: Key, pod_autoscaler: Object, *, may_be_zero: bool) -> None:
        """Record what has changed; `may_be_zero`: its policy allows no replica. Raises what the cluster raises."""
        uid, message = uid_of(pod_autoscaler), self.message(key, may_be_zero=may_be_zero)
        before = self._told.get(key, (uid, ""))
        told = before[1] if before[0] == uid else ""
        if message == told:
            return
        if message:
            await self._recorder.event(POD_AUTOSCALER, pod_autoscaler, "Warning", UNAVAILABLE, message)
        else:
            await self._recorder.event(POD_AUTOSCALER, pod_autoscaler, "Normal", AVAILABLE, "all is heard again")
        self._told[key] = (uid, message)

    def forget(self, key: Key) -> None:
        """The revision is gone."""
        self._since.pop(key, None)
        self._told.pop(key, None)

    def message(self, key: Key, *, may_be_zero: bool) -> str:
        """Who is not heard now, and what follows from it; empty where all are."""
        if self._is_silent(key):
            return REPLICAS
        return ACTIVATORS if may_be_zero and not self._hears() else ""

    def _is_silent(self, key: Key) -> bool:
        since = self._since.get(key)
        return since is not None and self._clock.monotonic() - since >= self._after
