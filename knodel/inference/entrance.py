"""Find where inference requests to a model are sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clusters.base.errors import Forbidden
from clusters.base.redact import redact_url
from knodel.operations.core import ClientCore, ModelsUrl
from serving.client.effects import Call, HttpRequest, exchange
from serving.client.errors import ClientError, DoesNotExist
from serving.client.http import ServerAddress
from serving.client.inference.ingress import TAG_HEADER, ingress_target

DENIED = (401, 403)
REDIRECTS = (301, 302, 303, 307, 308)
METADATA_TIMEOUT = 30.0  # s


@dataclass(frozen=True)
class Entrance:
    """The server of a model, the path before `/v2`, and headers that select the model and authenticate."""

    endpoint: ServerAddress
    path: str
    headers: Mapping[str, str]


def entrance_of(core: ClientCore, name: str, tag: str) -> Call[Entrance]:
    """Return the entrance of a model, or of its version with a tag. Raises NotFound, ClientError."""
    known = core.entrances.get((name, tag))
    if known is None:
        if core.url is not None:
            known = yield from _at_url(core.url, core.namespace, name, tag)
        else:
            target = yield from ingress_target(core.platform(), name, core.namespace, tag)
            known = Entrance(target.endpoint, "", target.headers)
        if core.url is not None or not tag:  # the gateway ignores a tag that was removed, so it is looked up each time
            core.entrances[name, tag] = known
    return known


def _at_url(url: ModelsUrl, namespace: str, name: str, tag: str) -> Call[Entrance]:
    """Find the path of a model below a URL: that of a gateway, or that of the protocol alone.

    The URL may be that of a gateway, of one model, or of another server of the Open Inference Protocol.
    """
    by_path = f"/namespaces/{namespace}/models/{name}{f'@{tag}' if tag else ''}"
    tagged = {**url.headers, **({TAG_HEADER: tag} if tag else {})}
    ways = [Entrance(url.endpoint, by_path, url.headers), Entrance(url.endpoint, "", tagged)]
    if "/models/" in url.endpoint.prefix:  # the URL of one model
        ways = ways[1:]
    for way in ways:
        target = f"{way.path}/v2/models/{name}"
        answer = yield from exchange(
            HttpRequest(way.endpoint, "GET", target, way.headers, None, METADATA_TIMEOUT, inference=True)
        )
        if answer.status in DENIED:
            raise denied(url.endpoint, answer.status)
        if answer.status in REDIRECTS and (location := answer.headers.get("location")):
            raise ClientError(
                f"{url.endpoint.where} redirects to {redact_url(location)}: give the URL of that server",
                answer.status,
            )
        if answer.status != 404:
            return way
    paths = " and ".join(f"{way.endpoint.prefix}{way.path}/v2/models/{name}" for way in ways)
    raise DoesNotExist(f"{url.endpoint.where} has no model {name} in namespace {namespace} (tried {paths})", 404)


def denied(endpoint: ServerAddress, status: int) -> Forbidden:
    """Return the error for a server that does not accept the credentials of a client."""
    error = Forbidden(f"{endpoint.where} does not accept the api_key of the client (HTTP {status}): check the key")
    error.status = status
    return error
