"""A pool of connections to endpoints, which closes idle ones before the endpoints do."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from clusters.base.errors import KnodelError
from clusters.net.upstream import UpstreamConnection

CONNECT_TIMEOUT = 2.0  # s; on the same machine a connection takes far less than a millisecond, or fails
IDLE_TIMEOUT = 4.0  # s; servers close idle connections after 5 s (uvicorn) or more, so none closes one that is taken

Address = tuple[str, int]


class ConnectFailed(KnodelError):
    """The connection to the endpoint failed, before any byte of the request was sent."""


@dataclass(slots=True)
class _Idle:
    connection: UpstreamConnection
    until: float


class UpstreamPool:
    """Idle connections by address. The most recently used one is taken first."""

    def __init__(self) -> None:
        self._idle: dict[Address, list[_Idle]] = {}
        self._sweep: asyncio.TimerHandle | None = None

    async def take(self, address: Address) -> UpstreamConnection:
        """Return an idle connection or a new one. Raises ConnectFailed."""
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
        self._idle.setdefault(address, []).append(_Idle(connection, loop.time() + IDLE_TIMEOUT))
        if self._sweep is None:
            self._sweep = loop.call_later(IDLE_TIMEOUT, self._close_old)

    def close(self) -> None:
        """Close all idle connections."""
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
        """Close connections that were idle for too long. This runs only while there are idle ones."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for address, idle in list(self._idle.items()):
            for one in idle:
                if one.until <= now:
                    one.connection.close()
            self._idle[address] = [one for one in idle if one.until > now and one.connection.reusable]
            if not self._idle[address]:
                del self._idle[address]
        self._sweep = loop.call_later(IDLE_TIMEOUT, self._close_old) if self._idle else None
