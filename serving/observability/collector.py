"""The metrics of the objects that the informers of a process hold."""

from __future__ import annotations

from collections.abc import Iterator

from clusters.base.objects import MODEL, MODEL_EVENT, WARM_POOL
from clusters.net.exposition import Family
from clusters.runtime.informer import Informers
from serving.observability.objects import RolloutCounter, event_families, model_families, pool_families


class ObjectMetrics:
    """Create it before the informers run, because it registers those that it needs."""

    def __init__(self, informers: Informers) -> None:
        self._models, self._pools, self._events = (informers[kind] for kind in (MODEL, WARM_POOL, MODEL_EVENT))
        self._rollouts = RolloutCounter()
        self._models.subscribe(self._rollouts.on_model)

    def families(self) -> Iterator[Family]:
        """Yield the metrics of all Models, WarmPools and ModelEvents that are known now."""
        yield from model_families(self._models)
        yield from self._rollouts.families()
        yield from pool_families(self._pools)
        yield from event_families(self._events)
