"""The autoscaler class as a process: composition root of `python -m autoscaler.main` on Kubernetes.

Several replicas may run; the one that holds the Lease `knodel-autoscaler` acts. Nothing reads Knative's activator yet:
what waits at zero would not be noticed, so a revision that can be reached keeps one replica (`Zero.enabled`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from autoscaler.config import Settings, Zero
from autoscaler.controller import Autoscaler
from autoscaler.metrics.no_activator import NoActivator
from autoscaler.metrics.source import PodScraper
from clusters.api import Cluster
from clusters.clock import Clock
from clusters.informer import Informers
from clusters.kubernetes import KubernetesCluster
from clusters.manager.manager import Component
from clusters.manager.options import Options
from clusters.manager.process import Program, run_program
from clusters.objects import DEPLOYMENT, LABEL_REVISION, POD

SELECTORS = {DEPLOYMENT: LABEL_REVISION, POD: LABEL_REVISION}
"""Knative's; nobody else's Pods are read."""
GRACE = 10.0
"""s between the activator being in the path by the ServerlessService's word and scale 0, for a revision that nobody
reaches any more: gateways learn of it a moment later, and Knative gives them up to 30 s."""


def connect(options: Options) -> AbstractAsyncContextManager[Cluster]:
    """The cluster that the options name; in a Pod its own."""
    return KubernetesCluster.connect(options.kube_context or None, options.kubeconfig, user_agent=PROGRAM.lease)


def make(cluster: Cluster, options: Options, settings: Settings, clock: Clock) -> Component:
    """The autoscaler over its informers."""
    informers = Informers(cluster, clock, namespace=options.namespace, selectors=SELECTORS)
    autoscaler = Autoscaler(
        cluster,
        informers,
        source=PodScraper(clock, settings.sampling),
        activator=NoActivator(),
        clock=clock,
        settings=settings,
    )
    return Component(informers, (autoscaler.controller,), autoscaler.run)


def read_settings(_text: str, _where: str) -> Settings:
    """The autoscaler has no settings of its own in the file: what differs from Model to Model is in its policy."""
    return Settings(zero=Zero(grace=GRACE, enabled=False))


PROGRAM = Program(
    name="autoscaler.main",
    about="Scale PodAutoscalers of class gpu.autoscaling.knodel.dev.",
    lease="knodel-autoscaler",
    connect=connect,
    settings=read_settings,
    make=make,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one replica; returns the exit code."""
    return run_program(PROGRAM, argv)


if __name__ == "__main__":
    sys.exit(main())
