"""Serve an ASGI application on sockets that the caller opened. An idle server never wakes up.

uvicorn's own server polls ten times a second and handles signals, which several servers in one process cannot share.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from clusters.net.server.protocol import ServerConnection
from clusters.net.sockets import BACKLOG

log = logging.getLogger(__name__)
# Its warnings are about clients, which get an error response.
logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


class HttpServer:
    """A server whose connections `connect` creates.

    `keep_alive` is the idle time of a connection in seconds. `certificate` (certificate, key) enables TLS 1.2 or newer.
    `date_header` adds a Date to each response. `drain` is the time in seconds to finish requests after `stop`.

    Example:
        server = HttpServer(app, MyConnection, keep_alive=75, drain=30.0)
        serving = asyncio.create_task(server.serve(listener))
        server.stop()
        await serving
    """

    def __init__(
        self,
        app: Any,
        connect: Callable[[HttpServer], ServerConnection],
        *,
        keep_alive: int,
        certificate: tuple[Path, Path] | None = None,
        date_header: bool = False,
        drain: float = 10.0,
    ) -> None:
        self.state = ServerState()
        self.config = Config(
            app,
            loop="none",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=keep_alive,
            ssl_certfile=certificate[0] if certificate else None,
            ssl_keyfile=certificate[1] if certificate else None,
            ssl_version=ssl.PROTOCOL_TLS_SERVER,
        )
        self.config.load()
        self._connect = connect
        self._date_header = date_header
        self._drain = drain
        self._listeners: list[asyncio.Server] = []
        self._stopping = asyncio.Event()
        self._closed = asyncio.Event()

    def set_app(self, app: Any) -> None:
        """Serve new requests by `app`, including those on existing connections."""
        self.config.loaded_app = app

    def update_date(self) -> None:
        """Set the Date header of new responses, if it is enabled."""
        if self._date_header:
            self.state.default_headers = [(b"date", formatdate(usegmt=True).encode())]

    async def serve(self, sock: socket.socket) -> None:
        """Serve until `stop`, then finish requests, and cancel those that take longer than `drain` seconds."""
        await self.start(sock)
        try:
            await self._stopping.wait()
        finally:
            self.stop_accepting()
        try:
            async with asyncio.timeout(self._drain):
                await self.connections_closed()
                await self.requests_done()
        except TimeoutError:
            log.warning("cancelling %d requests that did not finish in %g s", len(self.state.tasks), self._drain)
            for task in list(self.state.tasks):
                task.cancel()

    def stop(self) -> None:
        """End `serve`."""
        self._stopping.set()

    async def start(self, sock: socket.socket) -> None:
        """Accept connections on a listening socket."""
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(
            lambda: self._connect(self), sock=sock, ssl=self.config.ssl, backlog=BACKLOG
        )
        self._listeners.append(listener)

    def stop_accepting(self) -> None:
        """Close the listening sockets and idle connections. Requests in progress are the last on their connections."""
        for listener in self._listeners:
            listener.close()
        for connection in list(self.state.connections):
            connection.shutdown()

    async def requests_done(self) -> None:
        """Wait until no request is in progress."""
        while self.state.tasks:
            await asyncio.wait(self.state.tasks)

    async def connections_closed(self) -> None:
        """Wait until all connections are closed."""
        while self.state.connections:
            self._closed.clear()
            await self._closed.wait()

    def connection_lost(self) -> None:
        """Notify `connections_closed`."""
        if not self.state.connections:
            self._closed.set()
