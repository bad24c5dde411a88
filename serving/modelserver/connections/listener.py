"""The HTTP listeners of the model server, with a bounded drain and the header of the revision."""

from __future__ import annotations

import asyncio
import logging
import socket

from starlette.types import ASGIApp

from clusters.net.server.connection import HttpConnection
from clusters.net.server.outbox import Outbox
from clusters.net.server.server import HttpServer
from clusters.net.server.write_backpressure import ListenerState
from serving.modelserver.base.headers import REVISION
from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.connections.compression import CompressionMiddleware


class AsgiListener:
    """Serve `app` on one socket. Once the revision is known, all responses have it in `headers.REVISION`."""

    def __init__(self, app: ASGIApp, sock: socket.socket, limits: ServerLimits) -> None:
        self._socket = sock
        self._limits = limits
        self._state = ListenerState()
        self._server = HttpServer(CompressionMiddleware(app), self._connect, keep_alive=int(limits.keep_alive))
        self._outbox = Outbox(asyncio.get_running_loop(), self._server.state.tasks)

    def _connect(self, server: HttpServer) -> HttpConnection:
        return HttpConnection(server, self._limits, self._state, self._outbox)

    @property
    def port(self) -> int:
        """Return the port number."""
        return int(self._socket.getsockname()[1])

    def set_revision(self, revision: str) -> None:
        """Set the revision header of all responses from now on, including those to requests in progress."""
        self._server.state.default_headers[:] = [(REVISION, revision.encode("latin-1"))]

    def set_app(self, app: ASGIApp) -> None:
        """Serve new requests by `app`, including those on existing connections."""
        self._server.set_app(CompressionMiddleware(app))

    async def start(self) -> None:
        """Start serving."""
        await self._server.start(self._socket)

    async def drain(self, quiet: float, limit: float) -> None:
        """Serve until no request arrived for `quiet` seconds and none is in progress, at most for `limit` seconds.

        Responses ask clients to close their connections.
        """
        self._state.draining = True
        try:
            async with asyncio.timeout(limit):
                seen = -1
                while seen != self._state.requests:
                    await self._server.requests_done()
                    seen = self._state.requests
                    await asyncio.sleep(quiet)
        except TimeoutError:
            logging.getLogger(__name__).warning("requests still arrive after draining for %g s: shutting down", limit)

    async def close(self) -> None:
        """Stop accepting, close idle connections, finish requests, and wait until clients have read their responses.

        Connections that are still open after `ConnectionLimits.end` seconds are reset.
        """
        self._server.stop_accepting()
        await self._server.requests_done()
        try:
            async with asyncio.timeout(self._limits.end):
                await self._server.connections_closed()
        except TimeoutError:
            for connection in list(self._server.state.connections):
                if isinstance(connection, HttpConnection):
                    connection.reset()
