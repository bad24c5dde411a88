"""The autoscaler, put together: one controller over PodAutoscalers of our class, one over warm pools, one ticker.

Event-driven where idle: the ticker sleeps while no revision has replicas or waiting requests, and a request that waits
at zero is decided on in the activator's own callback.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from autoscaler.config import Settings
from autoscaler.metrics.answers import AnswerSource
from autoscaler.metrics.collector import Collector
from autoscaler.metrics.digest_page import DigestSource
from autoscaler.metrics.families import collector_families
from autoscaler.metrics.source import ActivatorLoad, MetricSource
from autoscaler.reconciler.digests import Digests
from autoscaler.reconciler.notes import Notes
from autoscaler.reconciler.observed import View, keys_by_revision
from autoscaler.reconciler.parts import Parts
from autoscaler.reconciler.pod_autoscaler import MANAGER, PodAutoscalerReconciler
from autoscaler.reconciler.progress import Progress, ProgressSource
from autoscaler.reconciler.scale_to_zero import Prober, ScaleToZero
from autoscaler.reconciler.silences import Silences
from autoscaler.reconciler.starts import SERVES, Starts
from autoscaler.scaling.fleet import Change, Fleet
from autoscaler.usage.ledger import Ledger
from autoscaler.usage.pools import PoolLedger
from autoscaler.warmpool.claims.caller import LoadCaller
from autoscaler.warmpool.claims.claim import ClaimStep
from autoscaler.warmpool.claims.keys import PoolKey
from autoscaler.warmpool.claims.pods import keys_by_claim
from autoscaler.warmpool.sizing.keep_warm import KeepWarm
from autoscaler.warmpool.starts import WarmStarts
from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.objects import DEPLOYMENT, POD, POD_AUTOSCALER, REPLICA_SET, SERVERLESS_SERVICE, WARM_POOL, Key
from clusters.runtime.controller import Controller
from clusters.runtime.informer import Informers
from clusters.runtime.manager.metrics import Family
from clusters.runtime.recorder import Recorder

log = logging.getLogger(__name__)


class Autoscaler:
    """Scales every PodAutoscaler of class `gpu.autoscaling.knodel.dev` until cancelled.

    `informers` and `pool_informers` (Pods of warm pools; where not given, the former) are run by the caller, after this
    is made; `source` answers for replicas, `progress` and `digests` for those that start, `answers` for how long
    answers took (without it latency objectives say nothing), `activator` for requests that wait, `caller` reaches
    members of pools, whose tokens come from `keys`; `prober`, where given, proves the activator in the path beyond what
    the ServerlessService says; nothing that can be reached is at zero while `hears` says that requests that wait would
    not be heard of.
    """

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        *,
        source: MetricSource,
        progress: ProgressSource,
        digests: DigestSource,
        answers: AnswerSource | None = None,
        activator: ActivatorLoad,
        caller: LoadCaller,
        clock: Clock,
        keys: PoolKey | None = None,
        pool_informers: Informers | None = None,
        settings: Settings | None = None,
        prober: Prober | None = None,
        hears: Callable[[], bool] = lambda: True,
    ) -> None:
        self._settings = settings or Settings()
        self._informers = informers
        self._clock = clock
        self._source = source
        self._caller = caller
        self._collector = Collector(source, self._settings.sampling, answers)
        self._fleet = Fleet(self._settings, activator.load)
        self._notes = Notes(cluster, clock, self._settings.records, MANAGER)
        self._starts = Starts(self._notes, clock, self._fleet.started)
        self._progress = Progress(progress, clock)
        self._ledger = Ledger(cluster, clock, self._settings.records, MANAGER)
        self._pool_ledger = PoolLedger(cluster, informers[WARM_POOL], clock, self._settings.records, MANAGER)
        zero = ScaleToZero(self._collector, activator, clock, self._settings.zero, prober)
        recorder = Recorder(cluster, MANAGER, clock)
        self._digests = Digests(cluster, digests, recorder, clock, MANAGER)
        self._silences = Silences(recorder, clock, hears)
        self._pool_informers = pool_informers or informers
        self._keep = KeepWarm(
            clock, self._settings.scaling, start_time=self._fleet.start_time, load=activator.load, changed=self._look_at
        )
        self._warm = WarmStarts(
            cluster, informers, self._pool_informers, caller=caller, keys=keys or PoolKey.random(), clock=clock,
            settings=self._settings.warm, recorder=recorder, formats=self._starts.format_of,
            log=self._claimed, keep=self._keep,
        )  # fmt: skip
        parts = Parts(
            cluster, View(informers), self._fleet, self._collector, activator, zero, self._notes, self._progress,
            self._starts, self._warm, self._silences, recorder, clock, self._settings, hears, self._ledger,
            self._digests,
        )  # fmt: skip
        self._reconciler = PodAutoscalerReconciler(parts)
        self.controller = Controller("autoscaler", self._pass, workers=self._settings.workers)
        self.controllers = (self.controller, *self._warm.controllers)
        self._watch(informers)
        self._work_to_do = asyncio.Event()
        activator.subscribe(self.wake)

    def _watch(self, informers: Informers) -> None:
        self.controller.watches(informers[POD_AUTOSCALER])
        self.controller.watches_owned(informers[SERVERLESS_SERVICE], POD_AUTOSCALER)
        self.controller.watches_mapped(informers[DEPLOYMENT], keys_by_revision)
        self.controller.watches_mapped(informers[REPLICA_SET], keys_by_revision)
        self.controller.watches_mapped(informers[POD], keys_by_revision)
        self.controller.watches_mapped(self._pool_informers[POD], keys_by_claim)
        informers[POD].subscribe(self._starts.pod)
        self._pool_informers[POD].subscribe(self._pool_ledger.pod)

    async def run(self) -> None:
        """Work until cancelled; closes the source at the end."""
        try:
            await self._informers.synced()
            await self._pool_informers.synced()
            async with asyncio.TaskGroup() as group:
                for controller in self.controllers:
                    group.create_task(controller.run(), name=controller.name)
                group.create_task(self._ticks(), name="autoscaler ticks")
                group.create_task(self._pool_ledger.run(), name="usage of warm pools")
                group.create_task(self._progress.run(self.controller.queue.add), name="replicas that start")
                group.create_task(self._digests.run(self.controller.queue.add), name="digests of replicas that start")
        finally:
            await self._source.close()
            await self._caller.close()

    def wake(self, key: Key) -> None:
        """The number of requests that wait for a revision became zero, or more: decide now."""
        if key in self._fleet:
            self._keep.woke(key)
            self._take(self._fleet.decide([key], self._clock.monotonic()))
            self.controller.queue.add(key)
            self._work_to_do.set()

    @property
    def waiting_at_zero(self) -> bool:
        """Whether a revision has no replica, so that a request may come at any moment and nobody hears of it."""
        return any(self._fleet.is_at_zero(key) for key in self._fleet)

    def reconsider(self) -> None:
        """What may be at zero has changed: pass over all revisions."""
        for key in self._fleet:
            self.controller.queue.add(key)

    def revisions(self) -> Iterable[Key]:
        """Those that it scales."""
        return self._fleet

    def families(self) -> list[Family]:
        """Metrics of its own."""
        return collector_families(self._collector)

    async def tick(self) -> None:
        """Read all replicas, then decide for all revisions that have replicas or waiting requests."""
        targets = self._reconciler.targets(self._fleet.active())
        readings = await self._collector.read(targets)
        for key in [key for key in targets if key not in self._fleet]:  # gone while they were asked
            del targets[key]
            self._collector.forget(key)
        now = self._clock.monotonic()
        self._fleet.observe(readings, targets, now)
        self._keep.heard(readings)
        for key in self._silences.tick(self._reconciler.targets(targets), readings):  # as of now: some have gone
            self.controller.queue.add(key)
        for key in targets:
            if self._digests.observe(key, self._collector.last(key)):
                self.controller.queue.add(key)
        for key in self._starts.heard(self._collector.last):
            self.controller.queue.add(key)
        active = self._fleet.active()
        self._take(self._fleet.decide(active, now))
        for key in self._reconciler.misplaced(active):
            self.controller.queue.add(key)
        for key in self._ledger.heard(readings, self._collector.last):
            self.controller.queue.add(key)

    async def _ticks(self) -> None:
        while True:
            await self._work_to_do.wait()
            began = self._clock.monotonic()
            try:
                await self.tick()
            except Exception:  # the frame: what is wrong with one tick must not end all scaling
                log.exception("a tick failed")
            if not self._fleet.any_active():
                self._work_to_do.clear()
                continue
            await self._clock.sleep(max(0.0, self._settings.sampling.tick - (self._clock.monotonic() - began)))

    async def _pass(self, key: Key) -> float | None:
        after = await self._reconciler.reconcile(key)
        if key in self._fleet and self._fleet.is_active(key):
            self._work_to_do.set()
        return after

    def _claimed(self, step: ClaimStep) -> None:
        self._starts.claimed(step)
        if step.ok and step.step == SERVES:
            self._ledger.claimed(step.key)

    def _look_at(self, key: Key) -> None:
        self.controller.queue.add(key)

    def _take(self, changes: Iterable[Change]) -> None:
        for change in changes:
            self._notes.add_decision(change)
            self.controller.queue.add(change.key)
