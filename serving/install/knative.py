"""What an installation has to know of Knative: whether it is there, which flags are off, where its ingress answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from clusters.base.api import Cluster
from clusters.base.errors import KnodelError, NotFound
from clusters.base.objects import (
    CONFIG_MAP,
    CONFIGURATION,
    DEPLOYMENT,
    POD_AUTOSCALER,
    REVISION,
    ROUTE,
    SERVERLESS_SERVICE,
    SERVICE,
    Object,
    timestamp,
)
from serving.install.kinds import CORE_SERVICE, CRD
from serving.makers.knative_flags import FLAGS, NAMESPACE, Flag
from serving.reconciler.apply import FIELD_MANAGER

NEEDED = (SERVICE, CONFIGURATION, REVISION, ROUTE, POD_AUTOSCALER, SERVERLESS_SERVICE)
"""Kinds of Knative Serving that our controllers read or write."""
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
LEAST_VERSION = "0.50 (release 1.20)"
CONFIG_NETWORK, CONFIG_DOMAIN = "config-network", "config-domain"
CLASS_KEYS = ("ingress-class", "ingress.class")
"""Knative reads the second one too, its name of before."""
DEFAULT_CLASS = "istio.ingress.networking.knative.dev"
DEFAULT_DOMAIN = "svc.cluster.local"
"""Where config-domain says nothing (knative/serving `pkg/reconciler/route/config/domain.go`)."""
INGRESSES: Mapping[str, tuple[str, str]] = {
    "kourier.ingress.networking.knative.dev": ("kourier-system", "kourier"),
    DEFAULT_CLASS: ("istio-system", "istio-ingressgateway"),
    "contour.ingress.networking.knative.dev": ("contour-external", "envoy"),
}
"""Namespace and name of the Service in front of each ingress, as its own manifests make it."""
HTTP_PORTS = ("http2", "http")
HTTP_PORT = 80


class KnativeMissing(KnodelError):
    """The cluster has no Knative Serving; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Ingress:
    """Where requests enter the cluster; what could not be found is empty or 0, and `notes` say why."""

    address: str = ""
    port: int = 0
    domain: str = ""
    notes: tuple[str, ...] = ()


async def require_knative(cluster: Cluster) -> None:
    """Raises KnativeMissing unless all of Knative Serving's kinds that we need are defined."""
    missing = []
    for kind in NEEDED:
        try:
            await cluster.get(CRD, kind.resource)
        except NotFound:
            missing.append(kind.resource)
    if len(missing) == len(NEEDED):
        raise KnativeMissing(
            f"this cluster has no Knative Serving: install version {LEAST_VERSION} or newer first "
            "(https://knative.dev/docs/install/), then run this again"
        )
    if missing:
        raise KnativeMissing(
            f"Knative Serving of this cluster lacks {', '.join(missing)}: bring it to version {LEAST_VERSION} or newer"
        )


async def flags_off(cluster: Cluster, flags: Sequence[Flag] = FLAGS) -> list[Flag]:
    """The flags that are off on the cluster."""
    data = {place: await _data(cluster, *place) for place in {(flag.namespace, flag.configmap) for flag in flags}}
    return [flag for flag in flags if not flag.is_on(data[flag.namespace, flag.configmap])]


async def switch_on(cluster: Cluster, flags: Iterable[Flag], *, dry_run: bool = False) -> list[Flag]:
    """Set the flags, and restart what reads them only when it starts; returns those that were, or would be, set.

    Raises NotFound when a ConfigMap of Knative's is absent.
    """
    done = [flag for flag in flags if flag.may_be_set(await _data(cluster, flag.namespace, flag.configmap))]
    if dry_run:
        return done
    for flag in done:
        patch = {"data": {flag.key: flag.wanted}}
        await cluster.patch(CONFIG_MAP, flag.configmap, patch, flag.namespace, manager=FIELD_MANAGER)
    for namespace, name in dict.fromkeys((flag.namespace, flag.restarts) for flag in done if flag.restarts):
        await _restart(cluster, namespace, name)
    return done


async def _restart(cluster: Cluster, namespace: str, name: str) -> None:
    """Replace the Pods of a Deployment of Knative's one after another, as `kubectl rollout restart` does."""
    annotations = {RESTARTED_AT: timestamp(datetime.now(UTC))}
    patch = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
    with suppress(NotFound):  # who runs none under this name restarts it by hand
        await cluster.patch(DEPLOYMENT, name, patch, namespace, manager=FIELD_MANAGER)


async def find_ingress(cluster: Cluster) -> Ingress:
    """Address and port of the ingress in use, and the domain of public hosts."""
    network = await _data(cluster, NAMESPACE, CONFIG_NETWORK)
    domain = domain_of(await _data(cluster, NAMESPACE, CONFIG_DOMAIN))
    notes = () if domain != DEFAULT_DOMAIN else (
        f"Knative has no public domain (ConfigMap {CONFIG_DOMAIN} of {NAMESPACE}): models are reached from within the "
        "cluster alone",
    )  # fmt: skip
    ingress_class = next((network[key] for key in CLASS_KEYS if network.get(key)), DEFAULT_CLASS)
    if ingress_class not in INGRESSES:
        return Ingress(domain=domain, notes=(*notes, f"the ingress {ingress_class} is not known: {_by_hand()}"))
    namespace, name = INGRESSES[ingress_class]
    try:
        service = await cluster.get(CORE_SERVICE, name, namespace)
    except NotFound:
        return Ingress(
            domain=domain, notes=(*notes, f"the ingress' Service {namespace}/{name} is not there: {_by_hand()}")
        )
    address, note = address_of(service)
    return Ingress(address, port_of(service), domain, (*notes, *([note] if note else ())))


def domain_of(data: Mapping[str, str]) -> str:
    """The domain of Routes without labels in a config-domain; a value is a label selector, empty for all."""
    return next((key for key, value in data.items() if key != "_example" and not value.strip()), DEFAULT_DOMAIN)


def address_of(service: Object) -> tuple[str, str]:
    """Where a Service is reached from outside, and what to know of it."""
    for entry in ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ():
        if entry.get("ip") or entry.get("hostname"):
            return str(entry.get("ip") or entry["hostname"]), ""
    spec = service.get("spec") or {}
    if spec.get("externalIPs"):
        return str(spec["externalIPs"][0]), ""
    address = str(spec.get("clusterIP") or "")
    if address in ("", "None"):
        return "", f"the ingress has no address: {_by_hand()}"
    return address, f"the ingress has no outer address, {address} is within the cluster: {_by_hand()}"


def port_of(service: Object) -> int:
    """The port for plain HTTP."""
    ports = (service.get("spec") or {}).get("ports") or ()
    named = [port for name in HTTP_PORTS for port in ports if port.get("name") == name]
    return int(next((port["port"] for port in (*named, *ports)), HTTP_PORT))


def _by_hand() -> str:
    return "set gateway.address and gateway.port in ConfigMap knodel-config"


async def _data(cluster: Cluster, namespace: str, name: str) -> Mapping[str, str]:
    """A ConfigMap's data; empty when it is absent, since Knative's defaults hold then."""
    try:
        return (await cluster.get(CONFIG_MAP, name, namespace)).get("data") or {}
    except NotFound:
        return {}
