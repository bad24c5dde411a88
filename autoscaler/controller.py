"""The autoscaler, put together: one controller over PodAutoscalers of our class, one ticker, one ear at the activator.

Event-driven where idle: the ticker sleeps while no revision has replicas or waiting requests, and a request that waits
at zero is decided on in the activator's own callback.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from autoscaler.config import Settings
from autoscaler.metrics.collector import Collector
from autoscaler.metrics.source import ActivatorLoad, MetricSource
from autoscaler.reconciler.decision_log import DecisionLog
from autoscaler.reconciler.observed import KINDS, View, keys_by_revision
from autoscaler.reconciler.pod_autoscaler import MANAGER, Parts, PodAutoscalerReconciler
from autoscaler.reconciler.scale_to_zero import Prober, ScaleToZero
from autoscaler.scaling.fleet import Change, Fleet
from clusters.api import Cluster
from clusters.clock import Clock
from clusters.controller import Controller
from clusters.informer import Informers
from clusters.objects import DEPLOYMENT, POD, POD_AUTOSCALER, SERVERLESS_SERVICE, Key
from clusters.recorder import Recorder

log = logging.getLogger(__name__)


class Autoscaler:
    """Scales every PodAutoscaler of class `gpu.autoscaling.knodel.dev` until cancelled.

    `informers` are run by the caller, after this is made; `source` answers for replicas, `activator` for requests that
    wait; `prober`, where given, proves the activator in the path beyond what the ServerlessService says.
    """

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        *,
        source: MetricSource,
        activator: ActivatorLoad,
        clock: Clock,
        settings: Settings | None = None,
        prober: Prober | None = None,
    ) -> None:
        self._settings = settings or Settings()
        self._informers = informers
        self._clock = clock
        self._source = source
        self._collector = Collector(source, self._settings.sampling)
        self._fleet = Fleet(self._settings, activator.load)
        self._decisions = DecisionLog(cluster, clock, self._settings.records, MANAGER)
        zero = ScaleToZero(self._collector, activator, clock, self._settings.zero, prober)
        recorder = Recorder(cluster, MANAGER, clock)
        view = View(informers)
        self._reconciler = PodAutoscalerReconciler(
            Parts(
                cluster, view, self._fleet, self._collector, activator, zero, self._decisions, recorder, clock,
                self._settings,
            )
        )  # fmt: skip
        self.controller = Controller("autoscaler", self._pass, workers=self._settings.workers)
        self._watch(informers)
        self._work_to_do = asyncio.Event()
        activator.subscribe(self.wake)

    def _watch(self, informers: Informers) -> None:
        self.controller.watches(informers[POD_AUTOSCALER])
        self.controller.watches_owned(informers[SERVERLESS_SERVICE], POD_AUTOSCALER)
        self.controller.watches_mapped(informers[DEPLOYMENT], keys_by_revision)
        self.controller.watches_mapped(informers[POD], keys_by_revision)

    async def run(self) -> None:
        """Work until cancelled; closes the source at the end."""
        try:
            for kind in KINDS:
                await self._informers[kind].synced()
            async with asyncio.TaskGroup() as group:
                group.create_task(self.controller.run(), name="autoscaler passes")
                group.create_task(self._ticks(), name="autoscaler ticks")
        finally:
            await self._source.close()

    def wake(self, key: Key) -> None:
        """The number of requests that wait for a revision became zero, or more: decide now."""
        if key in self._fleet:
            self._take(self._fleet.decide([key], self._clock.monotonic()))
            self.controller.queue.add(key)
            self._work_to_do.set()

    async def tick(self) -> None:
        """Read all replicas, then decide for all revisions that have replicas or waiting requests."""
        targets = self._reconciler.targets(self._fleet.active())
        readings = await self._collector.read(targets)
        now = self._clock.monotonic()
        self._fleet.observe(readings, targets, now)
        self._take(self._fleet.decide(self._fleet.active(), now))

    async def _ticks(self) -> None:
        while True:
            await self._work_to_do.wait()
            began = self._clock.monotonic()
            await self.tick()
            if not self._fleet.active():
                self._work_to_do.clear()
                continue
            await self._clock.sleep(max(0.0, self._settings.sampling.tick - (self._clock.monotonic() - began)))

    async def _pass(self, key: Key) -> float | None:
        after = await self._reconciler.reconcile(key)
        if key in self._fleet and self._fleet.is_active(key):
            self._work_to_do.set()
        return after

    def _take(self, changes: Iterable[Change]) -> None:
        for change in changes:
            self._decisions.add(change)
            self.controller.queue.add(change.key)
