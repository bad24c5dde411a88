"""The autoscaler: one controller for PodAutoscalers of our class, one for warm pools, and a ticker.

It is event-driven while idle. The ticker sleeps while no revision has replicas or queued requests. A request that is
queued at zero triggers a decision directly in the activator's callback.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from autoscaler.config import AutoscalerSettings
from autoscaler.gpu.holdings import Holder
from autoscaler.gpu.sharing import GpuSharing
from autoscaler.metrics.collector import MetricCollector
from autoscaler.metrics.digest_page import DigestSource
from autoscaler.metrics.response_latency import LatencySource
from autoscaler.metrics.revision_page import revision_families
from autoscaler.metrics.source import ActivatorLoad, MetricSource
from autoscaler.reconciler.adapters import AdapterReports
from autoscaler.reconciler.decision_recorder import DecisionRecorder
from autoscaler.reconciler.dependencies import Dependencies
from autoscaler.reconciler.digests import DigestEnforcer
from autoscaler.reconciler.elastic_jobs import ElasticJobs
from autoscaler.reconciler.metrics_availability import MetricsAvailability
from autoscaler.reconciler.observed import ObjectReader, keys_by_revision
from autoscaler.reconciler.pod_autoscaler import MANAGER, PodAutoscalerReconciler
from autoscaler.reconciler.progress import ProgressSource, StartProgress
from autoscaler.reconciler.scale_to_zero import Prober, ScaleToZero
from autoscaler.reconciler.starts import SERVES, StartTracker
from autoscaler.scaling.multi_scaler import Change, MultiScaler
from autoscaler.usage.ledger import UsageLedger
from autoscaler.usage.pools import PoolUsageLedger
from autoscaler.warmpool.claims.caller import LoadCaller
from autoscaler.warmpool.claims.claim import ClaimStep
from autoscaler.warmpool.claims.keys import PoolKey
from autoscaler.warmpool.claims.pods import keys_by_claim
from autoscaler.warmpool.sizing.keep_warm import KeepWarm
from autoscaler.warmpool.starts import WarmStarts
from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.objects import DEPLOYMENT, POD, POD_AUTOSCALER, REPLICA_SET, SERVERLESS_SERVICE, WARM_POOL, Key
from clusters.net.exposition import Family, Histogram
from clusters.runtime.controller import Controller
from clusters.runtime.informer import Informers
from clusters.runtime.recorder import Recorder

log = logging.getLogger(__name__)


class Autoscaler:
    """Scales every PodAutoscaler of class `gpu.autoscaling.knodel.dev`.

    The caller runs `informers` and `pool_informers` (Pods of warm pools; default: `informers`) after it has created
    this object. The other arguments:

        source            load of ready replicas
        progress, digests state of replicas that are starting
        answers           response times; without it, latency objectives have no effect
        activator         queued requests
        caller, keys      calls to members of warm pools, and the key of their tokens
        prober            proof that the activator is in the path, in addition to the ServerlessService's status
        gpus              the sharing of GPUs with elastic jobs; without it, nothing is limited by GPUs
        signal_available  False while queued requests could go undetected: no reachable revision is then at zero
    """

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        *,
        source: MetricSource,
        progress: ProgressSource,
        digests: DigestSource,
        answers: LatencySource | None = None,
        activator: ActivatorLoad,
        caller: LoadCaller,
        clock: Clock,
        keys: PoolKey | None = None,
        pool_informers: Informers | None = None,
        settings: AutoscalerSettings | None = None,
        prober: Prober | None = None,
        gpus: GpuSharing | None = None,
        signal_available: Callable[[], bool] = lambda: True,
    ) -> None:
        self._settings = settings or AutoscalerSettings()
        self._informers = informers
        self._clock = clock
        self._source = source
        self._caller = caller
        self._collector = MetricCollector(source, self._settings.sampling, answers)
        self._scaler = MultiScaler(self._settings, activator.load, gpus)
        self._decisions = DecisionRecorder(cluster, informers[POD_AUTOSCALER], clock, self._settings.records, MANAGER)
        self._starts = StartTracker(self._decisions, clock, self._scaler.record_start)
        self._progress = StartProgress(progress, clock)
        self._ledger = UsageLedger(cluster, clock, self._settings.records, MANAGER)
        self._pool_ledger = PoolUsageLedger(cluster, informers[WARM_POOL], clock, self._settings.records, MANAGER)
        zero = ScaleToZero(self._collector, activator, clock, self._settings.zero, prober)
        recorder = Recorder(cluster, MANAGER, clock)
        self._digests = DigestEnforcer(cluster, informers[POD], digests, recorder, clock, MANAGER)
        self._adapters = AdapterReports(cluster, MANAGER)
        self._availability = MetricsAvailability(recorder, clock, signal_available)
        self._pool_informers = pool_informers or informers
        self._keep = KeepWarm(
            clock,
            self._settings.scaling,
            start_time=self._scaler.start_time,
            load=activator.load,
            changed=self._enqueue,
        )
        self._warm = WarmStarts(
            cluster, informers, self._pool_informers, caller=caller, keys=keys or PoolKey.random(), clock=clock,
            settings=self._settings.warm, recorder=recorder, formats=self._starts.format_of,
            log=self._on_claim_step, keep=self._keep, gpus=gpus,
        )  # fmt: skip
        dependencies = Dependencies(
            cluster, ObjectReader(informers), self._scaler, self._collector, activator, zero, self._decisions,
            self._progress, self._starts, self._warm, self._availability, recorder, clock, self._settings,
            signal_available, self._ledger, self._digests, self._adapters, gpus,
        )  # fmt: skip
        self._reconciler = PodAutoscalerReconciler(dependencies)
        self.controller = Controller("autoscaler", self._reconcile, workers=self._settings.workers)
        self._gpus = gpus
        self._limited: set[Key] = set()  # revisions whose GPUs have changed since their last decision
        jobs = ElasticJobs(cluster, gpus, recorder, MANAGER, clock) if gpus is not None else None
        self.controllers = (self.controller, *self._warm.controllers, *(jobs.controllers if jobs is not None else ()))
        if gpus is not None:
            gpus.on_limits = self._on_limits
        self.controller.watches(informers[POD_AUTOSCALER])
        self.controller.watches_owned(informers[SERVERLESS_SERVICE], POD_AUTOSCALER)
        for kind in (DEPLOYMENT, REPLICA_SET, POD):
            self.controller.watches_mapped(informers[kind], keys_by_revision)
        self.controller.watches_mapped(self._pool_informers[POD], keys_by_claim)
        informers[POD].subscribe(self._starts.on_pod)
        self._pool_informers[POD].subscribe(self._pool_ledger.on_pod)
        self._work_to_do = asyncio.Event()
        activator.subscribe(self.wake)

    async def run(self) -> None:
        """Run until cancelled. Closes `source` and `caller` at the end."""
        try:
            await self._informers.synced()
            await self._pool_informers.synced()
            async with asyncio.TaskGroup() as group:
                for controller in self.controllers:
                    group.create_task(controller.run(), name=controller.name)
                if self._gpus is not None:
                    group.create_task(self._gpus.run(), name="GPUs")
                group.create_task(self._run_ticks(), name="autoscaler ticks")
                group.create_task(self._pool_ledger.run(), name="usage of warm pools")
                group.create_task(self._progress.run(self.controller.queue.add), name="progress of starting replicas")
                group.create_task(self._digests.run(self.controller.queue.add), name="digests of starting replicas")
        finally:
            await self._source.close()
            await self._caller.close()

    def wake(self, key: Key) -> None:
        """Decide now: the number of requests queued for a revision has become zero or non-zero."""
        if key in self._scaler:
            self._keep.observe_queue(key)
            self._record(self._scaler.decide([key], self._clock.monotonic()))
            self.controller.queue.add(key)
            self._work_to_do.set()

    @property
    def any_at_zero(self) -> bool:
        """Whether some revision has no replica, so that queued requests must be detected quickly."""
        return any(self._scaler.is_at_zero(key) for key in self._scaler)

    def reconsider(self) -> None:
        """Enqueue all revisions, because the bound for scale to zero has changed."""
        for key in self._scaler:
            self.controller.queue.add(key)

    def revisions(self) -> Iterable[Key]:
        """Return the revisions that are scaled here."""
        return self._scaler

    def families(self) -> list[Family | Histogram]:
        """Return the metrics of the autoscaler."""
        revisions = revision_families(self._scaler.views(self._clock.monotonic()))
        gpus = self._gpus.families() if self._gpus is not None else ()
        return [*self._collector.families(), *revisions, *self._decisions.counts.families(), *gpus]

    async def tick(self) -> None:
        """Read all replicas, then decide for all revisions with replicas or queued requests."""
        targets = self._reconciler.targets(self._scaler.active())
        readings = await self._collector.read(targets)
        for key in [key for key in targets if key not in self._scaler]:  # deleted during the reads
            del targets[key]
            self._collector.forget(key)
        now = self._clock.monotonic()
        self._scaler.observe(readings, targets, now)
        self._keep.observe(readings)
        for key in self._availability.observe(
            self._reconciler.targets(targets), readings
        ):  # without those deleted meanwhile
            self.controller.queue.add(key)
        for key in targets:
            samples = self._collector.last(key)
            changes = (self._digests.observe(key, samples), self._adapters.observe(key, samples))
            if any(changes):
                self.controller.queue.add(key)
        for key in self._starts.observe_readings(self._collector.last):
            self.controller.queue.add(key)
        active = self._scaler.active()
        self._record(self._scaler.decide(active, now))
        for key in self._reconciler.misplaced(active):
            self.controller.queue.add(key)
        for key in self._ledger.record_readings(readings, self._collector.last):
            self.controller.queue.add(key)

    async def _run_ticks(self) -> None:
        while True:
            await self._work_to_do.wait()
            began = self._clock.monotonic()
            try:
                await self.tick()
            except Exception:  # a failed tick must not stop scaling
                log.exception("a tick failed")
            if not self._scaler.any_active():
                self._work_to_do.clear()
                continue
            await self._clock.sleep(max(0.0, self._settings.sampling.tick - (self._clock.monotonic() - began)))

    def _on_limits(self, holders: Iterable[Holder]) -> None:
        """Decide again soon: other GPUs are granted to these revisions and warm pools."""
        for holder in holders:
            if holder == Holder.revision(holder.key):
                self._limited.add(holder.key)
                self.controller.queue.add(holder.key)
            else:
                self._warm.reconsider_pool(holder.key)

    async def _reconcile(self, key: Key) -> float | None:
        if key in self._limited:
            self._limited.discard(key)
            self._record(self._scaler.decide([key], self._clock.monotonic()))
        after = await self._reconciler.reconcile(key)
        if key in self._scaler and self._scaler.is_active(key):
            self._work_to_do.set()
        return after

    def _on_claim_step(self, step: ClaimStep) -> None:
        self._starts.record_claim_step(step)
        if step.ok and step.step == SERVES:
            self._ledger.record_claim(step.key)

    def _enqueue(self, key: Key) -> None:
        self.controller.queue.add(key)

    def _record(self, changes: Iterable[Change]) -> None:
        for change in changes:
            self._decisions.add_decision(change)
            self.controller.queue.add(change.key)
