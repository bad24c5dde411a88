"""The way into a real cluster: Kourier's address, and the hosts that Knative gives to Services."""

from __future__ import annotations

from dataclasses import dataclass

from clusters.base.api import Cluster
from clusters.base.objects import CONFIG_MAP, Key, Kind

CORE_SERVICE = Kind("", "v1", "Service", "services")


@dataclass(frozen=True, slots=True)
class Kourier:
    """`url` of the ingress, and Knative's domain."""

    url: str
    domain: str

    def host(self, service: Key) -> str:
        """The public host of a Service or Route."""
        return f"{service.name}.{service.namespace}.{self.domain}"


async def find_kourier(cluster: Cluster) -> Kourier:
    """By the Service `kourier` and the first domain of `config-domain`. Raises NotFound."""
    service = await cluster.get(CORE_SERVICE, "kourier", "kourier-system")
    domains = (await cluster.get(CONFIG_MAP, "config-domain", "knative-serving")).get("data") or {}
    domain = next(name for name in domains if not name.startswith("_"))
    return Kourier(f"http://{service['spec']['clusterIP']}", domain)
