"""Find the webhook for events: that of the platform, or that of a cluster through the proxy of its API server."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from serving.cli.context import Session
from serving.client.client import Client
from serving.client.errors import UsageError
from serving.client.http import ServerAddress

PATH: Final = "/events"
SERVICE: Final = "/api/v1/namespaces/knodel-system/services/knodel-eventing:http/proxy"
"""Path of the webhook's Service in the proxy of the API server (permission: get and create of `services/proxy`)."""
RBAC: Final = "rbac.authorization.k8s.io"
"""An API group that every Kubernetes cluster serves, but no platform of `knodel up`."""
PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Webhook:
    """The server of the webhook, its path, and the headers to authenticate to the proxy."""

    endpoint: ServerAddress
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)


def is_kubernetes(session: Session, client: Client) -> bool:
    """Return whether the server is a Kubernetes cluster; a platform of `knodel up` has no RBAC."""
    return bool(session.kube) and any(group.get("name") == RBAC for group in client.read("/apis").get("groups") or ())


def webhook_of(session: Session, client: Client, url: str) -> Webhook:
    """Return the webhook at `url`, else that of the platform or cluster. Raises ClientError."""
    if url:
        return _at(url)
    if not session.kube:
        return Webhook(session.platform().endpoint, PATH)
    server = session.kube.connect()
    if not is_kubernetes(session, client):
        return Webhook(server.endpoint, PATH)
    return Webhook(server.endpoint, SERVICE + PATH, server.credentials())


def _at(url: str) -> Webhook:
    try:
        parts = urlsplit(url)
        port = parts.port or PORTS[parts.scheme]
    except (KeyError, ValueError):
        raise UsageError(f"--url {url} is not an http:// or https:// URL") from None
    if not parts.hostname:
        raise UsageError(f"--url {url} has no host: give http://HOST or https://HOST")
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    endpoint = ServerAddress(
        parts.hostname, port, "the webhook", "check the address in --url", tls=tls,
        tls_remedy="install its certificate authority on this machine",
    )  # fmt: skip
    return Webhook(endpoint, parts.path.rstrip("/") or PATH)
