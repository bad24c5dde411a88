"""A uvicorn server without periodic wake-ups, whose signals the process handles, and whose drain is limited."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from uvicorn.config import Config
from uvicorn.server import Server

from clusters.embedded.activator.handler import ActivationHandler
from clusters.embedded.activator.proxy.caller import CallerConnection
from clusters.net.sockets import BACKLOG

KEEP_ALIVE = 2 * 3600  # s; longer than the gateway's idle timeout of 1 h, so it never uses a connection that is closing


class ActivatorServer(Server):
    """Serve `app` until `stop`, then finish active requests, for at most `drain` seconds."""

    def __init__(self, app: ActivationHandler, drain: int) -> None:
        super().__init__(
            Config(
                app,
                http=CallerConnection,
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=drain,
                backlog=BACKLOG,
            )
        )
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Stop accepting connections, and end when all requests are finished."""
        self._stopping.set()

    async def main_loop(self) -> None:
        """Wait for `stop`. The method of uvicorn polls ten times a second."""
        await self._stopping.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers: `__main__` does. uvicorn would end by the signal after a clean drain."""
        yield
