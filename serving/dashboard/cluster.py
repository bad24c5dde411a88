"""The dashboard on Kubernetes: users log in with a bearer token, which all requests use.

So the cluster's own authentication and RBAC decide. The dashboard's service account only reads, for the pages and for
doctor.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from clusters.base.clock import Clock
from clusters.base.errors import Forbidden, KnodelError
from clusters.base.objects import MODEL, Kind, Object, namespace_of, timestamp
from serving.client.api import ApiCalls
from serving.client.api_server import ApiServer
from serving.client.client import Client
from serving.client.effects import Call
from serving.client.errors import ClientError
from serving.client.http import ServerAddress
from serving.client.inference.ingress import IngressTarget
from serving.client.kubeconfig import KubeContext
from serving.client.models import gpus
from serving.client.models.logs import logs
from serving.dashboard.audit import AuditRecords
from serving.dashboard.commands import run_command, run_operation
from serving.dashboard.objects import Objects
from serving.dashboard.sessions import Session, Sessions
from serving.dashboard.tools import (
    GPUS_EVERY,
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
OF_THE_COMMAND: Final = frozenset({"rights", "ingress"})
"""Checks of doctor that concern the user and the machine of the command."""
MOST_NAMESPACES: Final = 200
"""Namespaces with Models whose rights are asked for one by one, for a user without rights in all."""


class ClusterAccess:
    """The rights of a bearer token at the cluster of `context`, whose user it replaces."""

    takes_token = True
    user = ""

    def __init__(self, context: KubeContext, sessions: Sessions, objects: Objects) -> None:
        self._context = context
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
        return KubeContext(self._context.name, "", "", {"token": token}, self._context.cluster).connect()


class ClusterTools:
    """The tools of Kubernetes. `context` has the rights of the dashboard itself."""

    def __init__(
        self, access: ClusterAccess, objects: Objects, records: AuditRecords, clock: Clock, context: KubeContext
    ) -> None:
        self._access = access
        self._objects = objects
        self._records = records
        self._clock = clock
        self._context = context
        self._findings: Findings | None = None
        self._examining = asyncio.Lock()
        self._gpus: WeakKeyDictionary[Session, tuple[float, GpuReading]] = WeakKeyDictionary()

    async def logs(self, session: Session, namespace: str, name: str) -> tuple[list[tuple[str, str]], str]:
        """Return the last lines of all replicas, if the user may read them."""

        def lines(api: ApiCalls) -> Call[list[tuple[str, str]]]:
            return collected(logs(api, name, namespace, tail=TAIL))

        try:
            return await run_operation(partial(self._access.connect, session), lines, SECONDS), ""
        except KnodelError as error:
            return [], str(error)

    async def examine(self, session: Session) -> None:
        """Run `knodel doctor -A` with the rights of the dashboard, once for all users who ask for it meanwhile.

        Raises KnodelError.
        """
        self.findings_for(session)
        before = self._findings
        async with self._examining:
            if self._findings is not before:
                return
            with NamedTemporaryFile("w", prefix="kubeconfig-", encoding="utf-8") as file:
                file.write(kubeconfig_of(self._context))
                file.flush()
                environ = {**os.environ, "KUBECONFIG": file.name}
                rows = await run_command(["doctor", "-A"], ("--kube-context", self._context.name), environ)
            seen = [row for row in rows if row["check"] not in OF_THE_COMMAND]
            self._findings = Findings(timestamp(self._clock.now()), seen)

    def findings_for(self, session: Session) -> Findings | None:
        """Return what doctor found when it ran last. Raises Forbidden for users who do not see all namespaces."""
        if session.namespaces is not None:
            raise Forbidden(
                "doctor shows Models of all namespaces, and you may not list them: "
                f"`knodel doctor --kube-context NAME -n {min(session.namespaces)}` checks yours"
            )
        return self._findings

    async def gpus(self, session: Session) -> GpuReading:
        """Return what `knodel gpus -A` shows with the rights of the user: to list nodes, and Pods of all namespaces."""
        now = self._clock.monotonic()
        read_at, reading = self._gpus.get(session, (now, None))
        if reading is None or now - read_at > GPUS_EVERY:
            reading = await asyncio.to_thread(self._read_gpus, session)
            self._gpus[session] = (now, reading)
        return reading

    def _read_gpus(self, session: Session) -> GpuReading:
        try:
            view = gpus.read_view(Client(self._access.connect(session), SECONDS), None, ())
        except KnodelError as error:
            return GpuReading(note=str(error))
        note = "" if view.inventory.nodes else "No node of the cluster has GPUs."
        return GpuReading(nodes=list(gpus.rows(view)), note=note, notes=list(gpus.lines(view)))

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


def own_context(name: str, environ: Mapping[str, str] = os.environ) -> KubeContext:
    """Return a context of the kubeconfig; without a name, the cluster and the service account of this Pod.

    Raises ClientError.
    """
    if name:
        return KubeContext.find(name, environ)
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ClientError("this process runs in no Pod: give --kube-context NAME")
    address = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    cluster = {"server": address, "certificate-authority": str(ACCOUNT / "ca.crt")}
    return KubeContext(IN_CLUSTER, "default", "", {"tokenFile": str(ACCOUNT / "token")}, cluster)


def kubeconfig_of(context: KubeContext) -> str:
    """Return a kubeconfig with this context alone."""
    named = {"name": context.name}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{**named, "cluster": context.cluster}],
            "users": [{**named, "user": context.user}],
            "contexts": [{**named, "context": {"cluster": context.name, "user": context.name}}],
        }
    )


def _review(kind: Kind) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.kind}
