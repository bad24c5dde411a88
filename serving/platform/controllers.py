"""The controllers of Models, WarmPools and events, which are the same on both clusters.

`serving/platform/main.py` and `serving/platform/platform.py` create them, each for its cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from autoscaler.metrics.pod_http import PodHttpClient
from clusters.base.api import Cluster
from clusters.base.clock import Clock, seconds_of_machine
from clusters.base.objects import MODEL_EVENT
from clusters.runtime.controller import Controller
from clusters.runtime.informer import Informers
from clusters.runtime.recorder import Recorder
from eventing.controller.controller import COMPONENT as EVENTS_COMPONENT
from eventing.controller.controller import EventController
from eventing.controller.expiry import ModelEventExpiry
from eventing.controller.source_controller import EventSourceController
from eventing.mapping.event_source import Reach
from serving.groups.controller import COMPONENT as GROUPS_COMPONENT
from serving.groups.controller import GroupController
from serving.groups.states import OneMachine, PodGroupStates
from serving.platform.event_files import EventFiles
from serving.platform.event_limits import bounds_of
from serving.platform.model_events import ModelTarget
from serving.platform.outcome_emitter import make_emitter
from serving.reconciler.controller import COMPONENT, ModelController
from serving.reconciler.flags import Flags
from serving.reconciler.rollout.judging.observer import TIMEOUT, PodObserver
from serving.reconciler.rollout.judging.prometheus import Prometheus
from serving.reconciler.warm_pools.controller import WarmPoolController
from serving.types.settings.settings import Settings


class Part(Protocol):
    """A component that runs until it is cancelled."""

    def run(self) -> Coroutine[Any, Any, None]: ...


class Controllers:
    """All controllers. Create it before `informers.run()`, because it registers the informers that it needs.

    `reach` returns whether EventSources of a namespace may name Models in other namespaces. `files` keeps local files
    that events name. `with_pods` is whether the workers of groups are Pods, as on Kubernetes.
    """

    def __init__(
        self, cluster: Cluster, informers: Informers, settings: Settings, clock: Clock, flags: Flags, reach: Reach,
        files: EventFiles | None = None, *, with_pods: bool = False,
    ) -> None:  # fmt: skip
        self._pages, self._prometheus = PodHttpClient(TIMEOUT), Prometheus(settings.rollout.prometheus_url)
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
            groups=PodGroupStates(informers) if with_pods else OneMachine(),
        )
        pools = WarmPoolController(cluster, informers, settings=settings, parts_of_gpus=flags.parts_of_gpus)
        target, recorder = ModelTarget(cluster, reach, files), Recorder(cluster, EVENTS_COMPONENT, clock)
        events = EventController(cluster, informers, target=target, clock=clock, recorder=recorder)
        sources = EventSourceController(cluster, informers, clock=clock, reach=reach, most=settings.events.pending)
        expiry = ModelEventExpiry(cluster, informers[MODEL_EVENT], clock, bounds_of(settings.events))
        emitter = make_emitter(cluster, informers, settings.events, clock)
        recorder = Recorder(cluster, GROUPS_COMPONENT, clock)
        groups = [GroupController(cluster, informers, clock=clock, recorder=recorder)] if with_pods else []
        self.parts: tuple[Part, ...] = (models, pools, events, sources, expiry, emitter, *groups)
        self.queues: tuple[Controller, ...] = (
            models.controller, pools.controller, events.controller, events.without_model,
            sources.controller, emitter.outboxes, emitter.controller, *(one.controller for one in groups),
        )  # fmt: skip

    async def close(self) -> None:
        """Close the connections of the judge. Call it after the controllers have ended."""
        await asyncio.gather(self._pages.close(), self._prometheus.close())
