"""The process of the controllers of Models and WarmPools on Kubernetes: `python -m serving.platform.main`.

Several replicas may run. The holder of the Lease `knodel-controller` is active.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.objects import POD, POD_AUTOSCALER, REVISION
from clusters.kubernetes import KubernetesCluster
from clusters.runtime.informer import Informers
from clusters.runtime.manager.manager import Component
from clusters.runtime.manager.options import Options
from clusters.runtime.manager.process import ControlPlaneProgram, run_program
from serving.observability.collector import ObjectMetrics
from serving.platform.controllers import Controllers
from serving.reconciler.flags import ConfigMapFlags
from serving.types.annotations import LABEL_GROUP_ROLE, LABEL_MODEL
from serving.types.settings.settings import Settings, settings_from_text

SYSTEM = "knodel-system"
"""The platform's namespace. Its administrators create EventSources there, which may name Models in any namespace."""

SELECTORS = {REVISION: LABEL_MODEL, POD_AUTOSCALER: LABEL_MODEL, POD: LABEL_GROUP_ROLE}
"""Watch only objects of Models, and of Pods only those of groups. Services, Configurations and Routes are watched
unfiltered, to find name conflicts."""


def connect(options: Options) -> AbstractAsyncContextManager[Cluster]:
    """Connect to the cluster of the options, or in a Pod to its own cluster."""
    return KubernetesCluster.connect(options.kube_context or None, options.kubeconfig, user_agent=PROGRAM.lease)


def make(cluster: Cluster, options: Options, settings: Settings, clock: Clock) -> Component:
    """Return the controllers with their informers."""
    informers = Informers(cluster, clock, namespace=options.namespace, selectors=SELECTORS)
    ours = Controllers(
        cluster, informers, settings, clock, ConfigMapFlags(cluster, clock),
        reach=lambda namespace: namespace == SYSTEM, with_pods=True,
    )  # fmt: skip

    objects = ObjectMetrics(informers)

    async def run() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for part in ours.parts:
                    group.create_task(part.run())
        finally:
            await ours.close()

    return Component(informers, ours.queues, run, objects.families)


PROGRAM = ControlPlaneProgram(
    name="serving.platform.main",
    about="Run the controllers of Models, WarmPools and events.",
    lease="knodel-controller",
    connect=connect,
    settings=settings_from_text,
    make=make,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one replica and return the exit code."""
    return run_program(PROGRAM, argv)


if __name__ == "__main__":
    sys.exit(main())
