"""An HTTP server of uvicorn's parts, without its main loop: idle, it never wakes up, and its drain is bounded."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.server import ServerState

from clusters.net.sockets import BACKLOG
from serving.modelserver.base.headers import REVISION
from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.connections.compression import CompressionMiddleware
from serving.modelserver.connections.connection import HttpConnection
from serving.modelserver.connections.outbox import Outbox
from serving.modelserver.connections.write_backpressure import ListenerState

logging.getLogger("uvicorn.error").setLevel(
    logging.ERROR
)  # its warnings are about clients, which get an error response


class AsgiListener:
    """Serves `app` on one socket. Once the revision is known, all responses have it in `headers.REVISION`."""

    def __init__(self, app: ASGIApp, sock: socket.socket, limits: ServerLimits) -> None:
        self._socket = sock
        self._limits = limits
        self._state = ListenerState()
        self._server_state = ServerState()
        self._outbox = Outbox(asyncio.get_running_loop(), self._server_state.tasks)
        self._config = Config(
            CompressionMiddleware(app),
            http=HttpConnection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=int(limits.keep_alive),
        )
        self._config.load()
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """Return the port number."""
        return int(self._socket.getsockname()[1])

    def set_revision(self, revision: str) -> None:
        """Set the revision header of all responses from now on, including those to requests in progress."""
        self._server_state.default_headers[:] = [(REVISION, revision.encode("latin-1"))]

    def set_app(self, app: ASGIApp) -> None:
        """Serve new requests by `app`, including those on existing connections."""
        self._config.loaded_app = CompressionMiddleware(app)

    async def start(self) -> None:
        """Start serving."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: HttpConnection(self._config, self._server_state, self._limits, self._state, self._outbox),
            sock=self._socket,
            backlog=BACKLOG,
        )

    async def drain(self, quiet: float, limit: float) -> None:
        """Serve until no request arrived for `quiet` seconds and none is in progress, at most for `limit` seconds.

        Responses ask clients to close their connections.
        """
        self._state.draining = True
        try:
            async with asyncio.timeout(limit):
                seen = -1
                while seen != self._state.requests:
                    await self._requests_done()
                    seen = self._state.requests
                    await asyncio.sleep(quiet)
        except TimeoutError:
            logging.getLogger(__name__).warning("requests still arrive after draining for %g s: shutting down", limit)

    async def close(self) -> None:
        """Stop accepting, close idle connections, finish requests, and wait until clients have read their responses.

        Connections that are still open after `ServerLimits.end` seconds are reset.
        """
        if self._server is not None:
            self._server.close()
        for connection in list(self._server_state.connections):
            connection.shutdown()
        await self._requests_done()
        closed = self._state.all_closed = asyncio.Event()
        connections: list[Any] = [*self._server_state.connections]
        if not connections:
            return
        try:
            async with asyncio.timeout(self._limits.end):
                await closed.wait()
        except TimeoutError:
            for connection in connections:
                connection.reset()

    async def _requests_done(self) -> None:
        while self._server_state.tasks:
            await asyncio.wait(self._server_state.tasks)
