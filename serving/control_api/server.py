"""uvicorn servers inside the platform's event loop. The caller opens the sockets and handles signals."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from clusters.base.errors import AddressInUse
from serving.control_api.body import MAX_BODY
from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.connections.connection import HttpConnection
from serving.modelserver.connections.write_backpressure import ListenerState

KEEP_ALIVE = 65  # s, longer than the idle time of kubectl's connections between two commands
LIMITS = ServerLimits(body=2 * MAX_BODY)  # the application refuses large bodies first, with a Status
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


class _Connection(HttpConnection):
    """A connection with the model server's limits for framing, headers and slow callers."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, LIMITS, ListenerState())

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start the application as uvicorn does: the head of a watch is sent at once, without waiting for a body."""
        HttpToolsProtocol._start_asgi_task(self, cycle, app)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the process's signal handlers alone."""
        yield


def make_server(app: ASGIApp, certificate: tuple[Path, Path] | None = None) -> uvicorn.Server:
    """Return a server for `app`, with TLS 1.2 or newer given (certificate, key). `serve(sockets=[...])` runs it."""
    config = uvicorn.Config(
        app,
        loop="none",
        http=_Connection,
        ws="none",
        proxy_headers=False,
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=SHUTDOWN,
        ssl_certfile=certificate[0] if certificate else None,
        ssl_keyfile=certificate[1] if certificate else None,
        ssl_version=ssl.PROTOCOL_TLS_SERVER,
    )
    return _Server(config)
