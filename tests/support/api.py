"""An API server over an embedded cluster, for processes that speak to one: TLS, and every kind is writable."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from clusters.base.clock import SystemClock
from clusters.base.errors import ClusterError
from clusters.base.objects import KINDS, Kind, Object
from clusters.embedded.cluster import EmbeddedCluster
from serving.control_api.app import ControlApi
from serving.control_api.guard import Guard
from serving.control_api.resources import error_response
from serving.control_api.server import listen, make_server
from serving.control_api.tls import ensure_certificate, kubeconfig

TOKEN = "t0ken"


class NoLogs:
    """No Pod runs here."""

    async def follow(self, pod: Object, *, tail: int | None, follow: bool, previous: bool) -> AsyncIterator[bytes]:
        """Nothing to speak of."""
        yield b""

    def has_previous(self, pod: Object) -> bool:
        """No container was restarted."""
        return False


class WithStatus:
    """The control API, and server-side apply of a status, which its callers never need."""

    def __init__(self, cluster: EmbeddedCluster, app: ASGIApp) -> None:
        self._cluster = cluster
        self._app = app
        self._kinds = {kind.plural: kind for kind in KINDS if kind.status and kind.group == "knodel.dev"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = str(scope.get("path", "")).split("/")
        kind = self._kinds.get(path[-3]) if len(path) > 3 and path[-1] == "status" else None
        if kind is None:
            await self._app(scope, receive, send)
            return
        await (await self._apply(kind, Request(scope, receive)))(scope, receive, send)

    async def _apply(self, kind: Kind, request: Request) -> Response:
        obj = msgspec.json.decode(await request.body())
        manager = request.query_params["fieldManager"]
        try:
            done = await self._cluster.apply(kind, obj, manager=manager, force=True, subresource="status")
        except ClusterError as error:
            return error_response(error)
        return Response(msgspec.json.encode(done), media_type="application/json")


@contextlib.asynccontextmanager
async def api_server(
    cluster: EmbeddedCluster,
    folder: Path,
    *,
    around: Callable[[ASGIApp], ASGIApp] = lambda app: app,
    tls: bool = True,
) -> AsyncIterator[Path]:
    """The kubeconfig of a running API server, its files in `folder`.

    `around` puts something before it; without `tls`, clients whose clocks are wrong trust it too.
    """
    clock = SystemClock()
    api = ControlApi(
        cluster, kinds=KINDS, writable=frozenset(KINDS), logs=NoLogs(), clock=clock, version="0", ready=lambda: True
    )
    app = around(WithStatus(cluster, api.app(Guard(TOKEN, frozenset({"127.0.0.1"})))))
    authority, certificate, key = ensure_certificate(folder / "tls", clock.now())
    listener = listen("127.0.0.1", 0, "a port")
    config = folder / "kubeconfig"
    address = f"{'https' if tls else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
    config.write_text(kubeconfig(address, authority.read_bytes(), TOKEN))
    server = make_server(app, (certificate, key) if tls else None)
    task = asyncio.create_task(server.serve(listener))
    try:
        yield config
    finally:
        server.stop()
        await task
