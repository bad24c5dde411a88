"""A small implementation of Knative Serving for the embedded cluster: all that a Service needs to get traffic.

    Service ─▶ Configuration ─▶ Revision ─▶ Deployment + PodAutoscaler        (Pods and scaling are elsewhere)
       └─────▶ Route ─▶ Ingress                                               (traffic is in `dataplane`)

Objects, conditions, reasons and messages are those of Knative Serving 0.50, so callers need not know which one runs.
All reconcilers are level-triggered: they read the present state, write only differences, and may be interrupted between
any two writes.
"""

from __future__ import annotations

import asyncio

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.embedded.knative.client import CachedClient
from clusters.embedded.knative.configuration import ConfigurationReconciler
from clusters.embedded.knative.defaults import KnativeSettings, RevisionGC
from clusters.embedded.knative.gc import RevisionCollector
from clusters.embedded.knative.ingress import Domain
from clusters.embedded.knative.revision import RevisionReconciler
from clusters.embedded.knative.route import RouteReconciler, Url
from clusters.embedded.knative.service import ServiceReconciler
from clusters.runtime.informer import Informers


class KnativeServing:
    """The controllers of Knative Serving.

    `informers` are shared, and the caller runs them; create this object before they start. `domain` returns the public
    host of a (namespace, name), and `url` the URL of a host.
    """

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        *,
        clock: Clock,
        domain: Domain,
        url: Url,
        settings: KnativeSettings | None = None,
    ) -> None:
        settings = settings or KnativeSettings()
        client = CachedClient(cluster, informers)
        self._informers = informers
        self._controllers = (
            ServiceReconciler(client, clock).controller(),
            ConfigurationReconciler(client, clock).controller(),
            RevisionReconciler(client, clock, settings).controller(),
            RouteReconciler(client, clock, domain, url).controller(),
            RevisionCollector(client, clock, settings.gc).controller(),
        )

    async def run(self) -> None:
        """Run all controllers until cancelled, once the informers have synced."""
        await self._informers.synced()
        async with asyncio.TaskGroup() as group:
            for controller in self._controllers:
                group.create_task(controller.run(), name=controller.name)


__all__ = ["Domain", "KnativeServing", "KnativeSettings", "RevisionGC", "Url"]
