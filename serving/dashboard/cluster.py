"""The dashboard on Kubernetes: users log in with a bearer token, which all requests use.

So the cluster's own authentication and RBAC decide. The dashboard's service account only reads.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from clusters.base.errors import Forbidden, KnodelError
from clusters.base.objects import MODEL, Kind, Object, namespace_of
from serving.client.api import ApiCalls
from serving.client.api_server import ApiServer
from serving.client.effects import Call
from serving.client.errors import ClientError
from serving.client.http import ServerAddress
from serving.client.inference.ingress import IngressTarget
from serving.client.kube_credentials import Credentials
from serving.client.kubeconfig import KubeContext
from serving.client.models.logs import logs
from serving.dashboard.audit import AuditRecords
from serving.dashboard.commands import run_operation
from serving.dashboard.objects import Objects
from serving.dashboard.sessions import Session, Sessions
from serving.dashboard.tools import (
    TAIL,
    Findings,
    GpuReading,
    Prediction,
    collected,
    example_of,
    in_thread,
    prediction_of,
)

IN_CLUSTER: Final = "in-cluster"
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SELF_REVIEW: Final = Kind("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False)
ACCESS_REVIEW: Final = Kind(
    "authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
)
SECONDS: Final = 30.0
MOST_NAMESPACES: Final = 200
"""Namespaces with Models whose rights are asked for one by one, for a user without rights in all."""


class ClusterAccess:
    """The rights of a bearer token. `cluster` is the cluster's entry of a kubeconfig."""

    takes_token = True
    user = ""

    def __init__(self, context: str, cluster: Mapping[str, Any], sessions: Sessions, objects: Objects) -> None:
        self._context = context
        self._cluster = cluster
        self._sessions = sessions
        self._objects = objects

    def check_peer(self, scope: Mapping[str, Any]) -> None:
        """Accept every connection: the token decides."""

    async def log_in(self, token: str) -> Session:
        """Return a session for the user of the token, who must be allowed to list Models. Raises Forbidden."""
        text = token.strip()
        if not text:
            raise Forbidden("the token is empty: give a bearer token of the cluster")
        server = self._server(text)
        try:
            review = await run_operation(
                lambda: server, lambda api: api.review(SELF_REVIEW, _review(SELF_REVIEW)), SECONDS
            )
        except KnodelError as error:
            raise Forbidden(f"the cluster does not accept the token: {error}") from error
        name = str(((review.get("status") or {}).get("userInfo") or {}).get("username") or "")
        if not name:
            raise Forbidden("the cluster did not name the user of the token: is it Kubernetes 1.28 or newer?")
        return self._sessions.start(name, text, await self._namespaces(server))

    async def _namespaces(self, server: ApiServer) -> frozenset[str] | None:
        """Return the namespaces whose Models the user may list; None for all. Raises Forbidden for none."""
        if await self._may(server, "list", MODEL, ""):
            return None
        known = sorted({namespace_of(one) for one in self._objects.models()})[:MOST_NAMESPACES]
        answers = await asyncio.gather(*(self._may(server, "list", MODEL, one) for one in known))
        allowed = frozenset(one for one, good in zip(known, answers, strict=True) if good)
        if not allowed:
            raise Forbidden(
                "this user may list no Models: ask the administrator for the ClusterRole view in a namespace"
            )
        return allowed

    async def _may(self, server: ApiServer, verb: str, kind: Kind, namespace: str) -> bool:
        attributes = {"verb": verb, "group": kind.group, "resource": kind.plural, "namespace": namespace}
        asked = {**_review(ACCESS_REVIEW), "spec": {"resourceAttributes": attributes}}
        found = await run_operation(lambda: server, lambda api: api.review(ACCESS_REVIEW, asked), SECONDS)
        return bool((found.get("status") or {}).get("allowed"))

    async def check(self, session: Session, verb: str, kind: Kind, namespace: str) -> None:
        """Check a right of the user. Raises Forbidden."""
        if not await self._may(self._server(session.token), verb, kind, namespace):
            raise Forbidden(f"{session.user} may not {verb} {kind.plural} in namespace {namespace}")

    def connect(self, session: Session) -> ApiServer:
        """Return the API server with the token of the session."""
        return self._server(session.token)

    def _server(self, token: str) -> ApiServer:
        credentials = Credentials(self._context, "", {"token": token}, self._cluster)
        return ApiServer(self._context, self._cluster, credentials)


class ClusterTools:
    """The tools of Kubernetes."""

    def __init__(self, access: ClusterAccess, objects: Objects, records: AuditRecords) -> None:
        self.findings: Findings | None = None
        self._access = access
        self._objects = objects
        self._records = records

    async def logs(self, session: Session, namespace: str, name: str) -> tuple[list[tuple[str, str]], str]:
        """Return the last lines of all replicas, if the user may read them."""

        def lines(api: ApiCalls) -> Call[list[tuple[str, str]]]:
            return collected(logs(api, name, namespace, tail=TAIL))

        try:
            return await run_operation(partial(self._access.connect, session), lines, SECONDS), ""
        except KnodelError as error:
            return [], str(error)

    async def examine(self, session: Session) -> None:
        """Refuse: the command needs rights that a page should not have. Raises KnodelError."""
        raise KnodelError("on a cluster, doctor runs with your own rights: `knodel doctor --kube-context NAME`")

    async def gpus(self) -> GpuReading:
        """Name the command."""
        return GpuReading(note="`knodel gpus -A --kube-context NAME` shows the GPUs of the nodes, and who holds them.")

    def audit(self) -> Sequence[dict[str, Any]]:
        """Return the actions of this process; the API server's audit log has all changes."""
        return self._records.newest()

    async def example(self, session: Session, namespace: str, name: str) -> str:
        """Return the example request of a model."""
        target = await self._target(session, namespace, name)
        return await in_thread(example_of(target, name))

    async def predict(self, session: Session, namespace: str, name: str, body: str) -> Prediction:
        """Send a request to a model, from inside the cluster."""
        target = await self._target(session, namespace, name)
        return await in_thread(prediction_of(target, name, body))

    async def _target(self, session: Session, namespace: str, name: str) -> IngressTarget:
        """Return the address of a model inside the cluster, for users who may change it.

        The network may keep others from the model, but not this process. Raises Forbidden, ClientError.
        """
        await self._access.check(session, "update", MODEL, namespace)
        model: Object = self._objects.model(namespace, name) or {}
        address = ((model.get("status") or {}).get("address") or {}).get("url", "")
        url = urlsplit(str(address))
        if not url.hostname:
            raise ClientError(f"model {name} has no address inside the cluster yet")
        remedy = f"`knodel explain {name} -n {namespace}` shows its state"
        return IngressTarget(
            ServerAddress(url.hostname, url.port or 80, f"model {name}", remedy), {"Host": url.hostname}
        )


def cluster_entry(context: str, environ: Mapping[str, str] = os.environ) -> tuple[str, Mapping[str, Any]]:
    """Return the name and the entry of a kubeconfig's cluster; without a context, of the cluster of this Pod.

    Raises ClientError.
    """
    if context:
        return context, KubeContext.find(context, environ).cluster
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ClientError("this process runs in no Pod: give --kube-context NAME")
    name = f"[{host}]" if ":" in host else host
    return IN_CLUSTER, {"server": f"https://{name}:{port}", "certificate-authority": str(ACCOUNT / "ca.crt")}


def _review(kind: Kind) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.kind}
