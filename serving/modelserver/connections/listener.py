"""uvicorn's parts without its main loop: nothing wakes up while nothing happens, and a drain ends in time."""

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

logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # its warnings are about callers, who get an answer


class HttpListener:
    """Serves `app` on one socket; every answer tells the revision (`headers.REVISION`) once that is known."""

    def __init__(self, app: ASGIApp, sock: socket.socket, limits: ServerLimits) -> None:
        self._socket = sock
        self._limits = limits
        self._traffic = ListenerState()
        self._state = ServerState()
        self._outbox = Outbox(asyncio.get_running_loop(), self._state.tasks)
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
        """The port that it listens on."""
        return int(self._socket.getsockname()[1])

    def label(self, revision: str) -> None:
        """The revision of all answers from now on, those to requests under way included."""
        self._state.default_headers[:] = [(REVISION, revision.encode("latin-1"))]

    def answer_by(self, app: ASGIApp) -> None:
        """Requests that begin from now on are for `app`, on connections that there are, too."""
        self._config.loaded_app = CompressionMiddleware(app)

    async def start(self) -> None:
        """Serve."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connect, sock=self._socket, backlog=BACKLOG)

    async def drain(self, quiet: float, limit: float) -> None:
        """Go on serving, ask connections to end, and return when `quiet` seconds brought no request and none is open.

        After `limit` seconds it returns anyway.
        """
        self._traffic.draining = True
        try:
            async with asyncio.timeout(limit):
                await self._until_quiet(quiet)
        except TimeoutError:
            logging.getLogger(__name__).warning("requests still come after %g s: ending", limit)

    async def close(self) -> None:
        """Accept nothing more, close idle connections, let those with a request end and callers take their answers."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        await self._requests_done()
        await self._answers_taken()

    def _connect(self) -> HttpConnection:
        return HttpConnection(self._config, self._state, self._limits, self._traffic, self._outbox)

    async def _until_quiet(self, quiet: float) -> None:
        seen = -1
        while seen != self._traffic.requests:
            await self._requests_done()
            seen = self._traffic.requests
            await asyncio.sleep(quiet)

    async def _requests_done(self) -> None:
        while self._state.tasks:
            await asyncio.wait(self._state.tasks)

    async def _answers_taken(self) -> None:
        """What the applications have said is still on its way: return when no connection is left."""
        gone = self._traffic.all_gone = asyncio.Event()
        connections: list[Any] = [*self._state.connections]
        if not connections:
            return
        try:
            async with asyncio.timeout(self._limits.end):
                await gone.wait()
        except TimeoutError:
            for connection in connections:
                connection.cut_off()
