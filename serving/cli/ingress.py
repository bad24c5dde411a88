"""Where requests to a model go: the gateway of this machine, or the ingress of a cluster, with the model's Host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from clusters.base.errors import Forbidden
from clusters.base.objects import MODEL, Object, condition_of, name_of
from serving.cli.base.errors import CommandError, NoSuchThing
from serving.cli.client.http import Endpoint
from serving.cli.context import Session

TAG_HEADER = "Knative-Serving-Tag"
CLUSTER_LOCAL = ".svc.cluster.local"  # Knative's domain of addresses that only the cluster knows
HTTPS = "https"
HTTP_PORT, HTTPS_PORT = 80, 443


@dataclass(frozen=True, slots=True)
class Entrance:
    """An ingress, and the headers by which it knows the model and the version."""

    endpoint: Endpoint
    headers: Mapping[str, str]


def entrance_of(session: Session, name: str, tag: str) -> Entrance:
    """Where the model NAME is asked; `tag` asks one version.

    Raises CommandError when there is no platform or no ingress, NotFound, NoSuchThing for a tag that is not there.
    """
    if session.kube:
        return _of_cluster(session, name, tag)
    platform = session.platform()
    if tag:
        _tags_of(session.client().get(MODEL, name, session.namespace), tag)
    headers = {"Host": f"{name}.{session.namespace}.{platform.domain}"}
    return Entrance(platform.ingress, {**headers, TAG_HEADER: tag} if tag else headers)


def _of_cluster(session: Session, name: str, tag: str) -> Entrance:
    """The ingress of `knodel-config`, and the host that the Model's status says: its domain is not guessed.

    Who may not read the settings asks the host itself, as every other client of the model does.
    """
    from serving.cli.installed import READER, SYSTEM_NAMESPACE, installed_settings  # imports of no use to others

    client = session.client()
    url = urlsplit(_url_of(client.get(MODEL, name, session.namespace), tag))
    host = url.hostname or ""
    if host.endswith(CLUSTER_LOCAL):
        raise CommandError(
            f"model {name} is reached at {host} from inside the cluster alone: `visibility: public` puts it on the "
            "ingress"
        )
    context = session.kube.name if session.kube else ""
    try:
        gateway = installed_settings(client, context).gateway
        address, port = gateway.address, gateway.port
        remedy = f"`knodel doctor --kube-context {context}` looks for the cause; knodel-config says where it is"
    except Forbidden:
        address, port = host, url.port or (HTTPS_PORT if url.scheme == HTTPS else HTTP_PORT)
        remedy = f"Role {READER} in namespace {SYSTEM_NAMESPACE} lets you read where it is: ask who runs the cluster"
    return Entrance(_endpoint(address, port, url.scheme, host, remedy), {"Host": host})


def _endpoint(address: str, port: int, scheme: str, host: str, remedy: str) -> Endpoint:
    if scheme != HTTPS:
        return Endpoint(address, port, "the ingress", remedy)
    import ssl

    trust = "its certificate is signed by nobody that this machine trusts"
    return Endpoint(
        address, port, "the ingress", remedy, tls=ssl.create_default_context(), tls_name=host, tls_remedy=trust
    )


def _url_of(model: Object, tag: str) -> str:
    url = _tags_of(model, tag)[tag] if tag else (model.get("status") or {}).get("url", "")
    if not isinstance(url, str) or not urlsplit(url).hostname:
        ready = condition_of(model, "Ready") or {}
        reason = ": ".join(str(ready[part]) for part in ("reason", "message") if ready.get(part)) or "not ready yet"
        raise CommandError(f"model {name_of(model)} has no address: {reason}")
    return url


def _tags_of(model: Object, tag: str) -> Mapping[str, object]:
    """Return the tags in the Model's split with their addresses. Raises NoSuchThing when `tag` is none of them."""
    entries = (model.get("status") or {}).get("traffic") or ()
    tagged = {entry["tag"]: entry.get("url", "") for entry in entries if entry.get("tag")}
    if tag not in tagged:
        known = ", ".join(sorted(tagged)) or "none"
        raise NoSuchThing(f"model {name_of(model)} has no version with the tag {tag}; tags: {known}")
    return tagged
