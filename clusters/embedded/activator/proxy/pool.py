"""Connections to endpoints, kept for the next request as long as an endpoint surely keeps them too."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from clusters.base.errors import KnodelError
from clusters.embedded.activator.proxy.upstream import UpstreamConnection

CONNECT_TIMEOUT = 2.0  # s; on the same machine a connection takes well below a millisecond or fails
KEPT_FOR = (
    4.0  # s; servers close idle connections after 5 s (uvicorn) or more: ours goes first, so none closes under us
)

Address = tuple[str, int]


class ConnectFailed(KnodelError):
    """No connection to the endpoint: it has seen no byte of the request."""


@dataclass(slots=True)
class _Idle:
    connection: UpstreamConnection
    until: float


class ConnectionPool:
    """Idle connections by address, the most recently used first."""

    def __init__(self) -> None:
        self._idle: dict[Address, list[_Idle]] = {}
        self._sweep: asyncio.TimerHandle | None = None

    async def take(self, address: Address) -> UpstreamConnection:
        """A connection that nothing was sent on, or whose last exchange is complete. Raises ConnectFailed."""
        now = asyncio.get_running_loop().time()
        idle = self._idle.get(address, [])
        while idle:
            kept = idle.pop()
            if kept.connection.reusable and kept.until > now:
                return kept.connection
            kept.connection.close()
        return await self._connect(address)

    def give(self, address: Address, connection: UpstreamConnection) -> None:
        """Keep a connection after use, or close it when it cannot be used again."""
        if not connection.reusable:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        self._idle.setdefault(address, []).append(_Idle(connection, loop.time() + KEPT_FOR))
        if self._sweep is None:
            self._sweep = loop.call_later(KEPT_FOR, self._close_old)

    def close(self) -> None:
        """Close all that is idle."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for idle in self._idle.values():
            for kept in idle:
                kept.connection.close()
        self._idle.clear()

    async def _connect(self, address: Address) -> UpstreamConnection:
        host, port = address
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                _, connection = await asyncio.get_running_loop().create_connection(UpstreamConnection, host, port)
        except (OSError, TimeoutError) as error:
            raise ConnectFailed(f"no connection to {host}:{port}: {str(error) or 'timed out'}") from error
        return connection

    def _close_old(self) -> None:
        """Runs only while something is idle."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for address, idle in list(self._idle.items()):
            for one in idle:
                if one.until <= now:
                    one.connection.close()
            self._idle[address] = [one for one in idle if one.until > now and one.connection.reusable]
            if not self._idle[address]:
                del self._idle[address]
        self._sweep = loop.call_later(KEPT_FOR, self._close_old) if self._idle else None
