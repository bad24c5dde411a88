"""The autoscaler class as a process: composition root of `python -m autoscaler.main` on Kubernetes.

Several replicas may run; the one that holds the Lease `knodel-autoscaler` acts, and it alone asks activators and
replicas. Which requests wait at zero it hears from Knative's activators; while it does not hear them all, a revision
that can be reached keeps a replica.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from autoscaler.controller import Autoscaler
from autoscaler.metrics.activators import ActivatorPoller, activator_informers
from autoscaler.metrics.families import poller_families
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
"""Knative's; nobody else's are read."""
POOL_SELECTORS = {POD: LABEL_POOL}
"""Members that are not adopted yet: a label selector cannot say "or"."""
POOL_KEY = "pool-key"
IN_POD = "KUBERNETES_SERVICE_HOST"
"""A variable that every Pod has. Outside of the cluster the names of Services are not known, so there is no probe."""


@dataclass(frozen=True, slots=True)
class Works:
    """What runs beside one another while this replica leads."""

    autoscaler: Autoscaler
    poller: ActivatorPoller
    prober: ActivatorProber | None

    async def run(self) -> None:
        """Act until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.poller.run(), name="activators")
                group.create_task(self.autoscaler.run(), name="autoscaler")
        finally:
            if self.prober is not None:
                await self.prober.close()


def connect(options: Options) -> AbstractAsyncContextManager[Cluster]:
    """The cluster that the options name; in a Pod its own."""
    return KubernetesCluster.connect(options.kube_context or None, options.kubeconfig, user_agent=PROGRAM.lease)


def make(cluster: Cluster, options: Options, given: FileSettings, clock: Clock) -> Component:
    """The autoscaler over its informers. Raises BadPoolKey."""
    settings = given.settings
    informers = Informers(cluster, clock, namespace=options.namespace, selectors=SELECTORS)
    members = Informers(cluster, clock, namespace=options.namespace, selectors=POOL_SELECTORS)
    activators = activator_informers(cluster, clock, given.activator_namespace)
    poller = ActivatorPoller(activators[POD], clock, settings.activators)
    prober = ActivatorProber(domain=given.cluster_domain) if IN_POD in os.environ else None
    server, proxy = PodScraper(clock, settings.sampling), QueueProxyScraper(clock, settings.sampling)
    key = options.files.get(POOL_KEY)
    autoscaler = Autoscaler(
        cluster,
        informers,
        source=ReplicaSource(server, proxy, clock),
        progress=server,
        digests=server,
        answers=server,
        activator=poller,
        caller=HttpLoadCaller(settings.warm),
        clock=clock,
        keys=PoolKey.from_file(key) if key is not None and key.exists() else None,
        pool_informers=members,
        settings=settings,
        prober=prober,
        hears=lambda: poller.hears,
    )
    poller.follow(autoscaler.revisions, lambda: autoscaler.waiting_at_zero)
    poller.on_hearing(autoscaler.reconsider)
    sets = InformerSets(informers, members, later=activators)  # unheard, all that can be reached stays above zero
    works = Works(autoscaler, poller, prober)
    return Component(
        sets, autoscaler.controllers, works.run, lambda: [*poller_families(poller), *autoscaler.families()]
    )


PROGRAM = ControlPlaneProgram(
    name="autoscaler.main",
    about="Scale PodAutoscalers of class gpu.autoscaling.knodel.dev.",
    lease="knodel-autoscaler",
    connect=connect,
    settings=read_settings,
    make=make,
    files={POOL_KEY: "secret from which the tokens of warm pools' members follow [one of this process's own]"},
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one replica; returns the exit code."""
    return run_program(PROGRAM, argv)


if __name__ == "__main__":
    sys.exit(main())
