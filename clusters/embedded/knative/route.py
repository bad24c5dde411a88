"""The Route reconciler: create the Ingress, and label the Revisions and Configurations that get traffic.

Source: knative/serving `pkg/reconciler/route` and `pkg/reconciler/labeler`. While a target is missing or not ready, the
Ingress does not change, so the old traffic continues. Revisions are marked (label routingState, annotation routes) for
the PodAutoscaler and the collector. Knative's finalizer on Routes is not needed for that: a Revision that refers to a
deleted Route triggers the reconciliation of that Route.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from clusters.base.clock import Clock
from clusters.base.objects import (
    CONFIGURATION,
    INGRESS,
    LABEL_CONFIGURATION,
    REVISION,
    ROUTE,
    Key,
    Object,
    is_controlled_by,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    namespace_of,
)
from clusters.embedded.knative import names
from clusters.embedded.knative.client import CachedClient
from clusters.embedded.knative.ingress import Domain, host, make_ingress
from clusters.embedded.knative.labeler import Labeler
from clusters.embedded.knative.lifecycle import RouteStatus
from clusters.embedded.knative.service import is_observed
from clusters.embedded.knative.traffic import BadTrafficTarget, TrafficConfig, build_traffic_config
from clusters.runtime.controller import Controller

Url = Callable[[str], str]
"""Maps a public host to its URL, as in `http://magika.default.localhost:8080`."""

INDEX = "knative.targets"


def by_target(route: Object) -> list[str]:
    """Index Routes by the targets in their spec and in their present traffic."""
    namespace = namespace_of(route)
    targets = [
        *((route.get("spec") or {}).get("traffic") or ()),
        *((route.get("status") or {}).get("traffic") or ()),
    ]
    revisions = {f"revision/{namespace}/{target['revisionName']}" for target in targets if target.get("revisionName")}
    configurations = {
        f"configuration/{namespace}/{target['configurationName']}"
        for target in targets
        if target.get("configurationName")
    }
    return sorted(revisions | configurations)


class RouteReconciler:
    """Assign the traffic, create and report the Ingress, and label the targets."""

    def __init__(self, client: CachedClient, clock: Clock, domain: Domain, url: Url) -> None:
        self._client = client
        self._clock = clock
        self._domain = domain
        self._url = url
        self._labeler = Labeler(client, clock)
        client.informer(ROUTE).add_index(INDEX, by_target)

    def controller(self) -> Controller:
        """Return the controller, triggered by the Route, its Ingress, and the Configurations and Revisions of its
        traffic.
        """
        controller = Controller("knative route", self.reconcile)
        controller.watches(self._client.informer(ROUTE))
        controller.watches_mapped(self._client.informer(INGRESS), lambda ingress: [key_of(ingress)])
        controller.watches_mapped(
            self._client.informer(CONFIGURATION),
            lambda configuration: self._keys(configuration, [f"configuration/{key_of(configuration)}"]),
        )
        controller.watches_mapped(self._client.informer(REVISION), self._routes_to_revision)
        return controller

    async def reconcile(self, key: Key) -> None:
        """Reconcile a Route, or remove the marks of a deleted one."""
        route = self._client.get(ROUTE, key.name, key.namespace)
        if route is None or is_deleting(route):
            await self._labeler.clear(key)
            return
        status = RouteStatus(route)
        if not is_observed(route):
            status.mark_ingress_not_configured()
        await self._traffic(route, status)
        route = await self._client.update_status(ROUTE, route, status.result(self._clock.now()))
        await self._labeler.sync(route)

    async def _traffic(self, route: Object, status: RouteStatus) -> None:
        namespace = namespace_of(route)
        status.fields["url"] = self._url_of(route, "")
        traffic = build_traffic_config(
            route,
            lambda name: self._client.get(CONFIGURATION, name, namespace),
            lambda name: self._client.get(REVISION, name, namespace),
        )
        if isinstance(traffic, BadTrafficTarget):
            status.mark_bad_traffic_target(traffic.status, traffic.reason, traffic.message)
            return
        status.mark_traffic_assigned(self._status_traffic(route, traffic))
        status.fields["address"] = {"url": f"http://{names.local_host(namespace, name_of(route))}"}
        status.mark_tls_not_enabled()
        ingress = await self._ingress(route, traffic)
        if not is_controlled_by(ingress, route):
            status.mark_ingress_not_owned(names.ingress(name_of(route)))
        elif is_observed(ingress):
            status.propagate_ingress_status(ingress)
        else:
            status.mark_ingress_not_configured()

    async def _ingress(self, route: Object, traffic: TrafficConfig) -> Object:
        want = make_ingress(route, traffic, self._domain)
        have = self._client.get(INGRESS, name_of(want), namespace_of(route))
        if have is None:
            return await self._client.create(INGRESS, want, ROUTE, route)
        if not is_controlled_by(have, route):
            return have
        metadata = {key: want["metadata"][key] for key in ("labels", "annotations")}
        return await self._client.update(INGRESS, have, {"metadata": metadata, "spec": want["spec"]})

    def _status_traffic(self, route: Object, traffic: TrafficConfig) -> list[Object]:
        shown: list[Object] = []
        for target in traffic.targets:
            entry: Object = {
                "revisionName": target.revision,
                "percent": target.percent,
                "latestRevision": target.latest,
            }
            if target.tag:
                entry |= {"tag": target.tag, "url": self._url_of(route, target.tag)}
            shown.append(entry)
        return shown

    def _url_of(self, route: Object, tag: str) -> str:
        name = host(route, tag, self._domain)
        return f"http://{name}" if name.endswith(names.CLUSTER_DOMAIN) else self._url(name)

    def _routes_to_revision(self, revision: Object) -> list[Key]:
        namespace = namespace_of(revision)
        targets = [f"revision/{namespace}/{name_of(revision)}"]
        configuration = labels_of(revision).get(LABEL_CONFIGURATION)
        if configuration:
            targets.append(f"configuration/{namespace}/{configuration}")
        return self._keys(revision, targets)

    def _keys(self, obj: Object, targets: Iterable[str]) -> list[Key]:
        informer = self._client.informer(ROUTE)
        keys = {key_of(route) for target in targets for route in informer.indexed(INDEX, target)}
        keys |= {Key(namespace_of(obj), name) for name in names.routes_of(obj)}
        return sorted(keys)
