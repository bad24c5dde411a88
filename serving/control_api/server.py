"""The HTTP server of the control API and the webhook. The caller opens the sockets."""

from __future__ import annotations

import socket
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from clusters.base.errors import AddressInUse
from clusters.net.server.connection import HttpConnection
from clusters.net.server.limits import ConnectionLimits
from clusters.net.server.server import HttpServer
from clusters.net.server.write_backpressure import ListenerState
from serving.control_api.body import MAX_BODY

EVENTS = "/events"
"""Path of the webhook. `/NAME` or `/NAMESPACE/NAME` may follow, to select an EventSource."""
DASHBOARD = "/dashboard"
"""Path of the dashboard."""
KEEP_ALIVE = 65  # s, longer than the idle time of kubectl's connections between two commands
LIMITS = ConnectionLimits(body=2 * MAX_BODY)  # the application refuses large bodies first, with a Status
SHUTDOWN = 2  # s for open watches to end


def listen(host: str, port: int, setting: str) -> socket.socket:
    """Return a listening TCP socket. Raises AddressInUse, which names `setting`, the option for another port."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise AddressInUse(
            f"the control API cannot listen on {host}:{port} ({error.strerror})", f"choose another port with {setting}"
        ) from error
    listener.setblocking(False)
    return listener


def make_server(app: ASGIApp, certificate: tuple[Path, Path] | None = None) -> HttpServer:
    """Return a server for `app`, with TLS 1.2 or newer given (certificate, key). `serve(sock)` runs it.

    The head of a response is sent without waiting for the body, because a watch may have no event for a long time.
    """
    return HttpServer(
        app,
        lambda server: HttpConnection(server, LIMITS, ListenerState(), join_head=False),
        keep_alive=KEEP_ALIVE,
        certificate=certificate,
        date_header=True,
        drain=SHUTDOWN,
    )


class WithWebhook:
    """Route requests of `/events` to the webhook, of `/dashboard` to the dashboard, all others to the guarded API.

    The webhook and the dashboard authenticate callers themselves. Without a dashboard, the API gets its requests.
    """

    def __init__(self, api: ASGIApp, webhook: ASGIApp, dashboard: ASGIApp | None = None) -> None:
        self._api = api
        self._webhook = webhook
        self._dashboard = dashboard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Route one request."""
        path = scope.get("path", "")
        app = self._api
        if scope["type"] == "http" and _is_below(path, EVENTS):
            app = self._webhook
        elif self._dashboard is not None and scope["type"] == "http" and _is_below(path, DASHBOARD):
            app = self._dashboard
        await app(scope, receive, send)


def _is_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}/")
