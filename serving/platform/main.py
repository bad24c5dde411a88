"""The process of the controllers of Models and WarmPools on Kubernetes: `python -m serving.platform.main`.

Several replicas may run; the one that holds the Lease `knodel-controller` acts.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.objects import POD_AUTOSCALER, REVISION
from clusters.kubernetes import KubernetesCluster
from clusters.runtime.informer import Informers
from clusters.runtime.manager.manager import Component
from clusters.runtime.manager.options import Options
from clusters.runtime.manager.process import Program, run_program
from serving.platform.controllers import Controllers
from serving.reconciler.flags import ConfigMapFlags
from serving.types.annotations import LABEL_MODEL
from serving.types.settings.settings import Settings, settings_from_text

SYSTEM = "knodel-system"
"""The platform's own namespace: EventSources there are made by who runs it, and may speak of Models anywhere."""

SELECTORS = {REVISION: LABEL_MODEL, POD_AUTOSCALER: LABEL_MODEL}
"""What is made for Models; Services, Configurations and Routes of others are watched too: they may be in the way."""


def connect(options: Options) -> AbstractAsyncContextManager[Cluster]:
    """The cluster that the options name; in a Pod its own."""
    return KubernetesCluster.connect(options.kube_context or None, options.kubeconfig, user_agent=PROGRAM.lease)


def make(cluster: Cluster, options: Options, settings: Settings, clock: Clock) -> Component:
    """The controllers over their informers."""
    informers = Informers(cluster, clock, namespace=options.namespace, selectors=SELECTORS)
    ours = Controllers(cluster, informers, settings, clock, ConfigMapFlags(cluster, clock), reach=_reach)

    async def run() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for part in ours.parts:
                    group.create_task(part.run())
        finally:
            await ours.close()

    return Component(informers, ours.queues, run)


def _reach(namespace: str) -> bool:
    return namespace == SYSTEM


PROGRAM = Program(
    name="serving.platform.main",
    about="Keep Knative's objects as Models and WarmPools say.",
    lease="knodel-controller",
    connect=connect,
    settings=settings_from_text,
    make=make,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one replica; returns the exit code."""
    return run_program(PROGRAM, argv)


if __name__ == "__main__":
    sys.exit(main())
