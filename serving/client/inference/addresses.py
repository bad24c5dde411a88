"""Addresses of models.

The host name of a model, `NAME.NAMESPACE.localhost`, resolves in browsers and in curl, but not in Python or on Debian.
The gateway of a platform therefore also routes by path. The ingress of a Kubernetes cluster has no such path.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from clusters.base.objects import Object, name_of, namespace_of
from clusters.net.authority import url_host
from serving.client.inference.ingress import CLUSTER_LOCAL


def path_address(gateway: tuple[str, int], namespace: str, name: str, tag: str = "") -> str:
    """Return the base URL of a model by path, which works without name resolution. Pure.

    Example:
        >>> path_address(("127.0.0.1", 8080), "team", "iris", "blue")
        'http://127.0.0.1:8080/namespaces/team/models/iris@blue'
    """
    host, port = gateway
    return f"http://{reachable_host(host)}:{port}/namespaces/{namespace}/models/{name}{f'@{tag}' if tag else ''}"


def address_of(gateway: tuple[str, int] | None, model: Object, tag: str = "") -> str:
    """Return the base URL of the model, or of its version with `tag`; empty while there is none.

    `gateway` is the result of `gateway_of`.
    """
    status = model.get("status") or {}
    tagged = (one.get("url", "") for one in status.get("traffic") or () if one.get("tag") == tag)
    url = str(next(tagged, "") if tag else status.get("url") or "")
    if gateway is None or not url or is_local(url):
        return url
    return path_address(gateway, namespace_of(model), name_of(model), tag)


def is_local(url: str) -> bool:
    """Return whether only clients inside the cluster can reach the address. Pure."""
    return (urlsplit(url).hostname or "").endswith(CLUSTER_LOCAL)


def reachable_host(host: str) -> str:
    """Return a host for URLs: the loopback address for a server that listens on all addresses."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return url_host(reachable)
