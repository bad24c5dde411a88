"""Where events are sent: beside the control API of this machine, or through a cluster's API server to its webhook."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from serving.cli.base.errors import UsageError
from serving.cli.client.client import Client
from serving.cli.client.http import Endpoint
from serving.cli.context import Session

PATH: Final = "/events"
SERVICE: Final = "/api/v1/namespaces/knodel-system/services/knodel-eventing:http/proxy"
"""The webhook's Service as an API server passes requests on to it (right: get and create of `services/proxy`)."""
RBAC: Final = "rbac.authorization.k8s.io"
"""The API group that every cluster serves and no platform of ours."""
PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Webhook:
    """Its server, the path there, and the headers that let one through to it."""

    endpoint: Endpoint
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)


def is_kubernetes(session: Session, client: Client) -> bool:
    """Whether it is a cluster's API server; that of a platform on some machine has no rights to grant."""
    return bool(session.kube) and any(group.get("name") == RBAC for group in client.read("/apis").get("groups") or ())


def webhook_of(session: Session, client: Client, url: str) -> Webhook:
    """The webhook at `url`, else that of the platform or cluster. Raises CommandError."""
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
        raise UsageError(f"--url {url}: give an http:// or https:// address") from None
    if not parts.hostname:
        raise UsageError(f"--url {url}: it names no host")
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    endpoint = Endpoint(
        parts.hostname, port, "the webhook", "is it the right address?", tls=tls,
        tls_remedy="its certificate is signed by nobody that this machine trusts",
    )  # fmt: skip
    return Webhook(endpoint, parts.path.rstrip("/") or PATH)
