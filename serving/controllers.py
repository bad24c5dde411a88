"""The controllers of Models, WarmPools and events, which are the same on every cluster. Composes.

`serving/main.py` and `serving/platform.py` make them, each over its cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from autoscaler.metrics.pages import Pages
from clusters.api import Cluster
from clusters.clock import Clock, seconds_of_machine
from clusters.controller import Controller
from clusters.informer import Informers
from clusters.objects import MODEL_EVENT
from clusters.recorder import Recorder
from eventing.controller import COMPONENT as EVENTS_COMPONENT
from eventing.controller import EventController
from eventing.event_source import Reach
from eventing.expiry import ModelEventExpiry
from eventing.source_controller import EventSourceController
from serving.apis.settings import Settings
from serving.emitting import make_emitter
from serving.event_files import EventFiles
from serving.event_limits import bounds_of
from serving.events import ModelTarget
from serving.reconciler.controller import COMPONENT, ModelController
from serving.reconciler.flags import Flags
from serving.reconciler.warm_pool_controller import WarmPoolController
from serving.rollout.observer import TIMEOUT, PodObserver
from serving.rollout.prometheus import Prometheus


class Part(Protocol):
    """What works until it is cancelled."""

    def run(self) -> Coroutine[Any, Any, None]: ...


class Controllers:
    """All of them. Make it before `informers.run()`: they ask for the informers that they need.

    `reach`: the namespaces whose EventSources may speak of Models in others. `files` keeps local files of events.
    """

    def __init__(
        self, cluster: Cluster, informers: Informers, settings: Settings, clock: Clock, flags: Flags, reach: Reach,
        files: EventFiles | None = None,
    ) -> None:  # fmt: skip
        self._pages, self._prometheus = Pages(TIMEOUT), Prometheus(settings.rollout.prometheus_url)
        models = ModelController(
            cluster,
            informers,
            settings=settings,
            clock=clock,
            elapsed=seconds_of_machine,
            recorder=Recorder(cluster, COMPONENT, clock),
            flags=flags,
            observer=PodObserver(cluster, self._pages),
            metrics=self._prometheus,
        )
        pools = WarmPoolController(cluster, informers, settings=settings)
        target, recorder = ModelTarget(cluster, reach, files), Recorder(cluster, EVENTS_COMPONENT, clock)
        events = EventController(cluster, informers, target=target, clock=clock, recorder=recorder)
        sources = EventSourceController(cluster, informers, clock=clock, reach=reach, most=settings.events.pending)
        expiry = ModelEventExpiry(cluster, informers[MODEL_EVENT], clock, bounds_of(settings.events))
        emitter = make_emitter(cluster, informers, settings.events, clock)
        self.parts: tuple[Part, ...] = (models, pools, events, sources, expiry, emitter)
        self.queues: tuple[Controller, ...] = (
            models.controller, pools.controller, events.controller, events.without_model,
            sources.controller, emitter.outboxes, emitter.controller,
        )  # fmt: skip

    async def close(self) -> None:
        """Close the connections of the judge, once nothing runs any more."""
        await asyncio.gather(self._pages.close(), self._prometheus.close())
