"""Inspect Knative for an installation: whether it exists, which flags are off, and the address of its ingress."""

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
"""Knative also reads the second key, its former name."""
DEFAULT_CLASS = "istio.ingress.networking.knative.dev"
DEFAULT_DOMAIN = "svc.cluster.local"
"""Domain if config-domain has none (knative/serving `pkg/reconciler/route/config/domain.go`)."""
INGRESSES: Mapping[str, tuple[str, str]] = {
    "kourier.ingress.networking.knative.dev": ("kourier-system", "kourier"),
    DEFAULT_CLASS: ("istio-system", "istio-ingressgateway"),
    "contour.ingress.networking.knative.dev": ("contour-external", "envoy"),
}
"""Namespace and name of the Service of each ingress, as in its manifests."""
HTTP_PORTS = ("http2", "http")
HTTP_PORT = 80


class KnativeMissing(KnodelError):
    """The cluster has no Knative Serving. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class Ingress:
    """The entry point of requests to the cluster. Unknown values are empty or 0, and `notes` give the reason."""

    address: str = ""
    port: int = 0
    domain: str = ""
    notes: tuple[str, ...] = ()


async def require_knative(cluster: Cluster) -> None:
    """Check that all kinds of Knative Serving that we need are defined. Raises KnativeMissing."""
    missing = []
    for kind in NEEDED:
        try:
            await cluster.get(CRD, kind.resource)
        except NotFound:
            missing.append(kind.resource)
    if len(missing) == len(NEEDED):
        raise KnativeMissing(
            f"this cluster has no Knative Serving: install version {LEAST_VERSION} or newer first "
            "(https://knative.dev/docs/install/), then repeat this command"
        )
    if missing:
        raise KnativeMissing(
            f"Knative Serving of this cluster lacks {', '.join(missing)}: upgrade it to {LEAST_VERSION} or newer"
        )


async def flags_off(cluster: Cluster, flags: Sequence[Flag] = FLAGS) -> list[Flag]:
    """Return the flags that are off on the cluster."""
    data = {place: await _data(cluster, *place) for place in {(flag.namespace, flag.configmap) for flag in flags}}
    return [flag for flag in flags if not flag.is_on(data[flag.namespace, flag.configmap])]


async def switch_on(cluster: Cluster, flags: Iterable[Flag], *, dry_run: bool = False) -> list[Flag]:
    """Set the flags and restart Deployments that read them at start. Return the flags that were, or would be, set.

    Raises NotFound if a ConfigMap of Knative is missing.
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
    """Restart a Deployment of Knative, as `kubectl rollout restart` does."""
    annotations = {RESTARTED_AT: timestamp(datetime.now(UTC))}
    patch = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
    with suppress(NotFound):  # a Deployment with another name must be restarted by hand
        await cluster.patch(DEPLOYMENT, name, patch, namespace, manager=FIELD_MANAGER)


async def find_ingress(cluster: Cluster) -> Ingress:
    """Return address and port of the ingress in use, and the domain of public hosts."""
    network = await _data(cluster, NAMESPACE, CONFIG_NETWORK)
    domain = domain_of(await _data(cluster, NAMESPACE, CONFIG_DOMAIN))
    notes = () if domain != DEFAULT_DOMAIN else (
        f"Knative has no public domain (ConfigMap {CONFIG_DOMAIN} of {NAMESPACE}): models can be reached from within "
        "the cluster only",
    )  # fmt: skip
    ingress_class = next((network[key] for key in CLASS_KEYS if network.get(key)), DEFAULT_CLASS)
    if ingress_class not in INGRESSES:
        return Ingress(domain=domain, notes=(*notes, f"the ingress {ingress_class} is unknown: {_by_hand()}"))
    namespace, name = INGRESSES[ingress_class]
    try:
        service = await cluster.get(CORE_SERVICE, name, namespace)
    except NotFound:
        return Ingress(
            domain=domain, notes=(*notes, f"the ingress' Service {namespace}/{name} does not exist: {_by_hand()}")
        )
    address, note = address_of(service)
    return Ingress(address, port_of(service), domain, (*notes, *([note] if note else ())))


def domain_of(data: Mapping[str, str]) -> str:
    """Return the domain of Routes without labels in a config-domain, whose values are label selectors (empty: all)."""
    return next((key for key, value in data.items() if key != "_example" and not value.strip()), DEFAULT_DOMAIN)


def address_of(service: Object) -> tuple[str, str]:
    """Return the outside address of a Service, and a note on it."""
    for entry in ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ():
        if entry.get("ip") or entry.get("hostname"):
            return str(entry.get("ip") or entry["hostname"]), ""
    spec = service.get("spec") or {}
    if spec.get("externalIPs"):
        return str(spec["externalIPs"][0]), ""
    address = str(spec.get("clusterIP") or "")
    if address in ("", "None"):
        return "", f"the ingress has no address: {_by_hand()}"
    return address, f"the ingress has no outside address, {address} is inside the cluster: {_by_hand()}"


def port_of(service: Object) -> int:
    """Return the port for plain HTTP."""
    ports = (service.get("spec") or {}).get("ports") or ()
    named = [port for name in HTTP_PORTS for port in ports if port.get("name") == name]
    return int(next((port["port"] for port in (*named, *ports)), HTTP_PORT))


def _by_hand() -> str:
    return "set gateway.address and gateway.port in ConfigMap knodel-config"


async def _data(cluster: Cluster, namespace: str, name: str) -> Mapping[str, str]:
    """Return the data of a ConfigMap, or nothing if it is missing, since Knative's defaults apply then."""
    try:
        return (await cluster.get(CONFIG_MAP, name, namespace)).get("data") or {}
    except NotFound:
        return {}
