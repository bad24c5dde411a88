"""The objects that the pages show, from the informers of the process, with the readings of their models."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from clusters.base.clock import Clock
from clusters.base.objects import (
    EVENT_SOURCE,
    MODEL,
    MODEL_EVENT,
    POD,
    POD_AUTOSCALER,
    WARM_POOL,
    Object,
    labels_of,
    name_of,
    namespace_of,
)
from clusters.runtime.informer import Informer, Informers
from serving.cost.bill import Bill, make_bills
from serving.dashboard.history import History, Reading, SeriesName
from serving.types.annotations import LABEL_MODEL
from serving.types.settings.prices import HOUR, Prices

BY_MODEL: Final = "dashboard-model"
"""Index of Pods, PodAutoscalers and ModelEvents: `NAMESPACE/NAME` of their Model."""
FRESH: Final = 150.0
"""Seconds for which the last reading of a model counts as its present traffic."""
BILLS_EVERY: Final = 30.0
"""Seconds between two computations of the bills."""


class Objects:
    """Create it before the informers run, because it registers those that it needs."""

    def __init__(
        self, informers: Informers, history: History, clock: Clock, prices: Callable[[], Prices] = Prices
    ) -> None:
        self.history = history
        self.changes = 0
        """Changes of objects so far: while it is the same, pages are the same."""
        self._clock = clock
        self._prices = prices
        self._informers = informers
        self._kinds = (MODEL, POD, POD_AUTOSCALER, WARM_POOL, MODEL_EVENT, EVENT_SOURCE)
        for kind in self._kinds:
            informers[kind].subscribe(self._changed)
        for kind in (POD, POD_AUTOSCALER, MODEL_EVENT):
            informers[kind].add_index(BY_MODEL, _by_model)
        self._bills: dict[tuple[str, str], Bill] = {}
        self._billed_at: float | None = None

    def _changed(self, before: Object | None, after: Object | None) -> None:
        self.changes += 1
        if after is None and before is not None and before.get("kind") == MODEL.kind:
            self.history.forget(namespace_of(before), name_of(before))

    @property
    def is_synced(self) -> bool:
        """Whether all objects have been read once."""
        return all(self._informers[kind].is_synced for kind in self._kinds)

    def now(self) -> datetime:
        """Return the wall time."""
        return self._clock.now()

    @property
    def prices(self) -> Prices:
        """The prices in force."""
        return self._prices()

    @property
    def unit(self) -> str:
        """The unit of costs."""
        return self.prices.currency if self.prices.are_set else "pod-hours"

    @property
    def pods(self) -> Informer:
        """All Pods."""
        return self._informers[POD]

    def models(self) -> list[Object]:
        """Return all Models, by namespace and name."""
        return sorted(self._informers[MODEL], key=lambda one: (namespace_of(one), name_of(one)))

    def model(self, namespace: str, name: str) -> Object | None:
        """Return a Model, None if there is none of this name."""
        return self._informers[MODEL].get(name, namespace)

    def pods_of(self, namespace: str, name: str) -> list[Object]:
        """Return the Pods of a Model, by name."""
        return sorted(self._informers[POD].indexed(BY_MODEL, f"{namespace}/{name}"), key=name_of)

    def autoscalers_of(self, namespace: str, name: str) -> list[Object]:
        """Return the PodAutoscalers of a Model, by name."""
        return sorted(self._informers[POD_AUTOSCALER].indexed(BY_MODEL, f"{namespace}/{name}"), key=name_of)

    def pools(self) -> list[Object]:
        """Return all WarmPools, by namespace and name."""
        return sorted(self._informers[WARM_POOL], key=lambda one: (namespace_of(one), name_of(one)))

    def sources(self) -> list[Object]:
        """Return all EventSources, by namespace and name."""
        return sorted(self._informers[EVENT_SOURCE], key=lambda one: (namespace_of(one), name_of(one)))

    def events(self) -> Iterable[Object]:
        """Return all ModelEvents."""
        return self._informers[MODEL_EVENT]

    def events_of(self, namespace: str, name: str) -> list[Object]:
        """Return the ModelEvents of a Model."""
        return self._informers[MODEL_EVENT].indexed(BY_MODEL, f"{namespace}/{name}")

    def event(self, namespace: str, name: str) -> Object | None:
        """Return a ModelEvent, None if there is none of this name."""
        return self._informers[MODEL_EVENT].get(name, namespace)

    def traffic(self, namespace: str, name: str, revision: str = "") -> Reading | None:
        """Return the present traffic of a model or of one version; None while nothing was measured."""
        return self.history.latest(SeriesName(namespace, name, revision), self.now().timestamp() - FRESH)

    def spent_today(self, namespace: str, name: str) -> float | None:
        """Return the cost of a model since midnight UTC, in pod-hours if no prices are set; None without a bill."""
        prices, now = self.prices, self._clock.monotonic()
        if self._billed_at is None or now - self._billed_at >= BILLS_EVERY:
            self._billed_at = now
            found = make_bills(self._informers[POD_AUTOSCALER], self._informers[WARM_POOL], prices, "day", self.now())
            self._bills = {(one.namespace, one.model): one for one in found}
        bill = self._bills.get((namespace, name))
        if bill is None:
            return None
        return bill.cost.total if prices.are_set else bill.held.total / HOUR


def _by_model(obj: Object) -> Iterable[str]:
    model = labels_of(obj).get(LABEL_MODEL)
    return () if not model else (f"{namespace_of(obj)}/{model}",)
