"""Find the HTTP endpoint for requests to a model: the gateway of this machine, or the ingress of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from clusters.base.errors import Forbidden
from clusters.base.objects import MODEL, Object, condition_of, name_of
from serving.client.api import ApiCalls
from serving.client.effects import Call, work
from serving.client.errors import ClientError, DoesNotExist
from serving.client.http import ServerAddress
from serving.client.platform_ref import PlatformRef

if TYPE_CHECKING:
    import ssl

TAG_HEADER = "Knative-Serving-Tag"
CLUSTER_LOCAL = ".svc.cluster.local"  # Knative's domain for addresses inside the cluster
HTTPS = "https"
HTTP_PORT, HTTPS_PORT = 80, 443


@dataclass(frozen=True, slots=True)
class IngressTarget:
    """An ingress, with the headers that select the model and the version."""

    endpoint: ServerAddress
    headers: Mapping[str, str]


def ingress_target(ref: PlatformRef, name: str, namespace: str, tag: str = "") -> Call[IngressTarget]:
    """Return the ingress and headers for the model `name`, or for its version with `tag`.

    Raises ClientError without a platform or an ingress, NotFound for the model, DoesNotExist for the tag.
    """
    if ref.kube:
        return (yield from _of_cluster(ref, ref.kube.name, name, namespace, tag))
    platform = yield from work(ref.platform)
    if tag:
        _tags_of((yield from ApiCalls(platform).get(MODEL, name, namespace)), tag)
    headers = {"Host": f"{name}.{namespace}.{platform.domain}"}
    return IngressTarget(platform.ingress, {**headers, TAG_HEADER: tag} if tag else headers)


def _of_cluster(ref: PlatformRef, context: str, name: str, namespace: str, tag: str) -> Call[IngressTarget]:
    """Return the ingress of `knodel-config`, with the host in the Model's status.

    A caller who may not read the settings connects to that host, as other clients of the model do.
    """
    from serving.client.installed import READER, SYSTEM_NAMESPACE, installed_settings  # heavy; only clusters need them

    api = yield from ref.calls()
    url = urlsplit(_url_of((yield from api.get(MODEL, name, namespace)), tag))
    host = url.hostname or ""
    if host.endswith(CLUSTER_LOCAL):
        raise ClientError(
            f"model {name} can be reached only from inside the cluster, at {host}: `visibility: public` adds it to "
            "the ingress"
        )
    try:
        gateway = (yield from installed_settings(api, context)).gateway
        address, port = gateway.address, gateway.port
        remedy = f"`knodel doctor --kube-context {context}` finds the cause; its address is in knodel-config"
    except Forbidden:
        address, port = host, url.port or (HTTPS_PORT if url.scheme == HTTPS else HTTP_PORT)
        remedy = (
            f"its address is in knodel-config; ask the administrator for Role {READER} in namespace {SYSTEM_NAMESPACE}"
        )
    return IngressTarget(_endpoint(address, port, url.scheme, host, remedy), {"Host": host})


def _endpoint(address: str, port: int, scheme: str, host: str, remedy: str) -> ServerAddress:
    if scheme != HTTPS:
        return ServerAddress(address, port, "the ingress", remedy)
    trust = "install the certificate authority of the ingress on this machine"
    return ServerAddress(address, port, "the ingress", remedy, tls=_default_tls(), tls_name=host, tls_remedy=trust)


@cache
def _default_tls() -> ssl.SSLContext:
    """Return the TLS context for all ingresses: addresses are equal, and share connections, only with the same one."""
    import ssl

    return ssl.create_default_context()


def _url_of(model: Object, tag: str) -> str:
    url = _tags_of(model, tag)[tag] if tag else (model.get("status") or {}).get("url", "")
    if not isinstance(url, str) or not urlsplit(url).hostname:
        ready = condition_of(model, "Ready") or {}
        reason = ": ".join(str(ready[part]) for part in ("reason", "message") if ready.get(part)) or "not ready yet"
        raise ClientError(f"model {name_of(model)} has no address: {reason}")
    return url


def _tags_of(model: Object, tag: str) -> Mapping[str, object]:
    """Return the tags in the Model's traffic with their addresses. Raises DoesNotExist when `tag` is not among them."""
    entries = (model.get("status") or {}).get("traffic") or ()
    tagged = {entry["tag"]: entry.get("url", "") for entry in entries if entry.get("tag")}
    if tag not in tagged:
        known = ", ".join(sorted(tagged)) or "none"
        raise DoesNotExist(f"model {name_of(model)} has no version with the tag {tag}: its tags are {known}")
    return tagged
