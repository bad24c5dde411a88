"""A small stand-in for Knative Serving on the embedded cluster: only what the way from a Service to traffic needs.

    Service ─▶ Configuration ─▶ Revision ─▶ Deployment + PodAutoscaler        (pods and scaling are others' work)
       └─────▶ Route ─▶ Ingress                                               (traffic is the data plane's)

Objects, conditions, reasons and messages are those of Knative Serving 0.50, so nothing above can tell the two apart.
Every pass is level-triggered: it reads what is, writes only what differs, and may be cut off between any two writes.
"""

from __future__ import annotations

import asyncio

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.embedded.knative.collector import Collector
from clusters.embedded.knative.configuration import ConfigurationReconciler
from clusters.embedded.knative.ingress import Domain
from clusters.embedded.knative.revision import RevisionReconciler
from clusters.embedded.knative.route import RouteReconciler, Url
from clusters.embedded.knative.service import ServiceReconciler
from clusters.embedded.knative.settings import RevisionGC, Settings
from clusters.embedded.knative.view import View
from clusters.runtime.informer import Informers


class KnativeServing:
    """The controllers of the stand-in.

    `informers` are shared and run by the composition root; make this before they start. `domain` gives the public
    host of a (namespace, name), `url` the address that people use for a host.
    """

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        *,
        clock: Clock,
        domain: Domain,
        url: Url,
        settings: Settings | None = None,
    ) -> None:
        settings = settings or Settings()
        view = View(cluster, informers)
        self._informers = informers
        self._controllers = (
            ServiceReconciler(view, clock).controller(),
            ConfigurationReconciler(view, clock).controller(),
            RevisionReconciler(view, clock, settings).controller(),
            RouteReconciler(view, clock, domain, url).controller(),
            Collector(view, clock, settings.gc).controller(),
        )

    async def run(self) -> None:
        """Run all controllers until cancelled, from the moment that the informers know the cluster."""
        await self._informers.synced()
        async with asyncio.TaskGroup() as group:
            for controller in self._controllers:
                group.create_task(controller.run(), name=controller.name)


__all__ = ["Domain", "KnativeServing", "RevisionGC", "Settings", "Url"]
