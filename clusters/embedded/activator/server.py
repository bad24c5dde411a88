"""uvicorn without its clock: no wake-up while nothing happens, signals by the loop, and a drain that ends in time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from uvicorn.config import Config
from uvicorn.server import Server

from clusters.embedded.activator.app import Activator
from clusters.embedded.activator.proxy.caller import CallerConnection
from clusters.embedded.activator.proxy.tcp import BACKLOG

KEEP_ALIVE = (
    2 * 3600
)  # s; longer than the gateway's own idle time-out (1 h), so that it never meets a closing connection


class ActivatorServer(Server):
    """Serves `app` until `stop`, then finishes what is in flight, for `drain` seconds at most."""

    def __init__(self, app: Activator, drain: int) -> None:
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
        """Accept nothing more and end when all is answered."""
        self._stopping.set()

    async def main_loop(self) -> None:
        """Wait for `stop`; uvicorn's own looks ten times a second."""
        await self._stopping.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the process's (`__main__`); uvicorn would end by the signal after a clean drain."""
        yield
