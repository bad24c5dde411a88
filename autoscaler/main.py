"""Entry point of the autoscaler on Kubernetes: `python -m autoscaler.main`.

Several replicas may run. Only the holder of the Lease `knodel-autoscaler` acts and polls activators and replicas. It
learns from Knative's activators which requests are queued at zero. While an activator is unreachable, every reachable
revision keeps a replica.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from autoscaler.controller import Autoscaler
from autoscaler.gpu.elastic import ELASTIC_KINDS
from autoscaler.gpu.sharing import GpuSharing
from autoscaler.gpu.watch import GpuWatch, trim_job
from autoscaler.metrics.activators import ActivatorMonitor, activator_informers
from autoscaler.metrics.queue_proxy import QueueProxyScraper
from autoscaler.metrics.replicas import ReplicaSource
from autoscaler.metrics.source import PodScraper
from autoscaler.reconciler.prober import ActivatorProber
from autoscaler.settings_file import FileSettings, read_settings
from autoscaler.warmpool.claims.caller import HttpLoadCaller
from autoscaler.warmpool.claims.keys import PoolKey
from autoscaler.warmpool.claims.marks import LABEL_POOL
from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.objects import DEPLOYMENT, LABEL_REVISION, POD, REPLICA_SET
from clusters.kubernetes import KubernetesCluster
from clusters.runtime.informer import Informers, InformerSets
from clusters.runtime.manager.manager import Component
from clusters.runtime.manager.options import Options
from clusters.runtime.manager.process import ControlPlaneProgram, run_program

SELECTORS = {DEPLOYMENT: LABEL_REVISION, REPLICA_SET: LABEL_REVISION, POD: LABEL_REVISION}
"""Objects of Knative revisions; no others are read."""
POOL_SELECTORS = {POD: LABEL_POOL}
"""Members that are not adopted yet. They need their own informers, since a label selector cannot express "or"."""
POOL_KEY = "pool-key"
IN_POD = "KUBERNETES_SERVICE_HOST"
"""A variable that is set in every Pod. Outside the cluster, names of Services do not resolve, so there is no probe."""


@dataclass(frozen=True, slots=True)
class _Tasks:
    """The tasks that run while this replica is the leader."""

    autoscaler: Autoscaler
    monitor: ActivatorMonitor
    prober: ActivatorProber | None

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.monitor.run(), name="activators")
                group.create_task(self.autoscaler.run(), name="autoscaler")
        finally:
            if self.prober is not None:
                await self.prober.close()


def connect(options: Options) -> AbstractAsyncContextManager[Cluster]:
    """Connect to the cluster that the options name; in a Pod, to its own cluster."""
    return KubernetesCluster.connect(options.kube_context or None, options.kubeconfig, user_agent=PROGRAM.lease)


def make(cluster: Cluster, options: Options, given: FileSettings, clock: Clock) -> Component:
    """Create the autoscaler over its informers. Raises BadPoolKey."""
    settings = given.settings
    informers = Informers(cluster, clock, namespace=options.namespace, selectors=SELECTORS)
    members = Informers(cluster, clock, namespace=options.namespace, selectors=POOL_SELECTORS)
    activators = activator_informers(cluster, clock, given.activator_namespace)
    monitor = ActivatorMonitor(activators[POD], clock, settings.activators)
    prober = ActivatorProber(domain=given.cluster_domain) if IN_POD in os.environ else None
    server, proxy = PodScraper(clock, settings.sampling), QueueProxyScraper(clock, settings.sampling)
    key = options.files.get(POOL_KEY)
    watch = GpuWatch(cluster, clock, dict.fromkeys(ELASTIC_KINDS, trim_job))
    gpus = GpuSharing(watch, given.gpus, clock, settings.sampling.tick)
    autoscaler = Autoscaler(
        cluster,
        informers,
        source=ReplicaSource(server, proxy, clock),
        progress=server,
        digests=server,
        answers=server,
        activator=monitor,
        caller=HttpLoadCaller(settings.warm),
        clock=clock,
        keys=PoolKey.from_file(key) if key is not None and key.exists() else None,
        pool_informers=members,
        settings=settings,
        prober=prober,
        gpus=gpus,
        signal_available=lambda: monitor.signal_available,
    )
    monitor.follow(autoscaler.revisions, lambda: autoscaler.any_at_zero)
    monitor.on_availability_change(autoscaler.reconsider)
    sets = InformerSets(informers, members, later=activators)  # without them, no reachable revision goes to zero
    tasks = _Tasks(autoscaler, monitor, prober)
    return Component(sets, autoscaler.controllers, tasks.run, lambda: [*monitor.families(), *autoscaler.families()])


PROGRAM = ControlPlaneProgram(
    name="autoscaler.main",
    about="Scale PodAutoscalers of class gpu.autoscaling.knodel.dev.",
    lease="knodel-autoscaler",
    connect=connect,
    settings=read_settings,
    make=make,
    files={POOL_KEY: "key from which the tokens of warm-pool members are derived [a random key per process]"},
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one replica and return the exit code."""
    return run_program(PROGRAM, argv)


if __name__ == "__main__":
    sys.exit(main())
