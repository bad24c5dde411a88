"""Envoy's administration interface over its unix socket: what it knows, and to drain it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from clusters.gateway.bootstrap import ADMIN_SOCKET
from clusters.gateway.config import CLUSTER, ROUTE_TABLE
from clusters.gateway.errors import NotServing
from clusters.gateway.listener import STATS_PREFIX

TIMEOUT: Final = 5.0  # s; the socket is local and the answers are small: beyond this Envoy hangs

_ROUTES: Final = f"http.{STATS_PREFIX}.rds.{ROUTE_TABLE}"
_ENDPOINTS: Final = f"cluster.{CLUSTER}"
_CONFIGURATION: Final = f"^({_ROUTES}|{_ENDPOINTS})[.](version_text|update_rejected)$"
_ACTIVE_REQUESTS: Final = f"http.{STATS_PREFIX}.downstream_rq_active"


@dataclass(frozen=True, slots=True)
class InForce:
    """The versions of the files that Envoy's main thread has taken over, and how many it refused since it started."""

    routes: str
    endpoints: str
    refused: int


class Admin:
    """A client of the Envoy whose working directory is `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor = -1
        self._session: aiohttp.ClientSession | None = None

    async def in_force(self) -> InForce:
        """Which configuration is in force. Raises NotServing.

        Envoy hears of a renamed file before it hears of a request sent after the rename, and takes both in turn: the
        first answer after a change nearly always has it.
        """
        stats = await self._stats(_CONFIGURATION)
        return InForce(
            routes=stats.get(f"{_ROUTES}.version_text", "").strip('"'),
            endpoints=stats.get(f"{_ENDPOINTS}.version_text", "").strip('"'),
            refused=sum(int(stats.get(f"{one}.update_rejected", 0)) for one in (_ROUTES, _ENDPOINTS)),
        )

    async def active_requests(self) -> int:
        """How many requests of clients are under way. Raises NotServing."""
        return int((await self._stats(f"^{_ACTIVE_REQUESTS}$")).get(_ACTIVE_REQUESTS, 0))

    async def requests_at(self, address: str) -> int:
        """How many requests the endpoint at `host:port` has been sent and has not answered. Raises NotServing."""
        lines = (await self._ask("GET", "/clusters")).splitlines()
        start = f"{CLUSTER}::{address}::rq_active::"
        return sum(int(line.removeprefix(start)) for line in lines if line.startswith(start))

    async def drain_listeners(self) -> None:
        """Stop accepting connections; those that are open go on, and are told to close. Raises NotServing."""
        await self._ask("POST", "/healthcheck/fail")  # answers say `Connection: close` from here on
        await self._ask("POST", "/drain_listeners")

    async def reopen_logs(self) -> None:
        """Open the access log anew after it was renamed. Raises NotServing."""
        await self._ask("POST", "/reopen_logs")

    async def close(self) -> None:
        """Let the connection go; who asks meanwhile gets a new one."""
        session, self._session = self._session, None
        if session is not None:
            descriptor = self._descriptor
            await session.close()
            os.close(descriptor)

    async def _stats(self, expression: str) -> Mapping[str, str]:
        text = await self._ask("GET", "/stats", {"filter": expression})
        return dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)

    async def _ask(self, method: str, path: str, query: Mapping[str, str] | None = None) -> str:
        try:
            async with asyncio.timeout(TIMEOUT):
                async with self._open().request(method, f"http://envoy{path}", params=query) as response:
                    return await response.text()
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise NotServing(f"Envoy does not answer at {self._folder / ADMIN_SOCKET} ({error!r})") from error

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            # The folder's descriptor stands for its path, which may be longer than a socket's path may be.
            self._descriptor = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            connector = aiohttp.UnixConnector(f"/proc/self/fd/{self._descriptor}/{ADMIN_SOCKET}")
            self._session = aiohttp.ClientSession(connector=connector)
        return self._session
