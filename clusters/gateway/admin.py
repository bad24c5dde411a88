"""Clients of Envoy: its administration interface over a unix socket, and the version of its routes over TCP."""

from __future__ import annotations

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
from clusters.net.client import FAILURES, HttpClient

TIMEOUT: Final = 5.0  # s; the socket is local and the responses are small, so a slower Envoy hangs
PROBE_TIMEOUT: Final = 2.0  # s; the listener itself responds, in 0.1 ms

_ROUTES: Final = f"http.{STATS_PREFIX}.rds.{ROUTE_TABLE}"
_ENDPOINTS: Final = f"cluster.{CLUSTER}"
_CONFIGURATION: Final = f"^({_ROUTES}|{_ENDPOINTS})[.](version_text|update_rejected)$"
_ACTIVE_REQUESTS: Final = f"http.{STATS_PREFIX}.downstream_rq_active"


@dataclass(frozen=True, slots=True)
class InForce:
    """The versions of the files that Envoy's main thread applied, and the number of rejections since its start."""

    routes: str
    endpoints: str
    refused: int


class Admin:
    """A client of the Envoy with the working directory `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor = -1
        self._client = HttpClient(TIMEOUT, self._connector)

    async def in_force(self) -> InForce:
        """Return the configuration in force. Raises NotServing.

        Envoy handles the event of a renamed file before a request that was sent after it. So the first response after
        a change nearly always includes it.
        """
        stats = await self._stats(_CONFIGURATION)
        return InForce(
            routes=stats.get(f"{_ROUTES}.version_text", "").strip('"'),
            endpoints=stats.get(f"{_ENDPOINTS}.version_text", "").strip('"'),
            refused=sum(int(stats.get(f"{one}.update_rejected", 0)) for one in (_ROUTES, _ENDPOINTS)),
        )

    async def active_requests(self) -> int:
        """Return the number of active client requests. Raises NotServing."""
        return int((await self._stats(f"^{_ACTIVE_REQUESTS}$")).get(_ACTIVE_REQUESTS, 0))

    async def requests_at(self, address: str) -> int:
        """Return the number of active requests at the endpoint `host:port`. Raises NotServing."""
        lines = (await self._request("GET", "/clusters")).splitlines()
        start = f"{CLUSTER}::{address}::rq_active::"
        return sum(int(line.removeprefix(start)) for line in lines if line.startswith(start))

    async def drain_listeners(self) -> None:
        """Stop accepting connections, and ask clients of open ones to close them. Raises NotServing."""
        await self._request("POST", "/healthcheck/fail")  # responses have `Connection: close` from here on
        await self._request("POST", "/drain_listeners")

    async def reopen_logs(self) -> None:
        """Reopen the access log after it was renamed. Raises NotServing."""
        await self._request("POST", "/reopen_logs")

    async def close(self) -> None:
        """Close the connection. A later call opens a new one."""
        descriptor, self._descriptor = self._descriptor, -1
        await self._client.close()
        if descriptor >= 0:
            os.close(descriptor)

    async def _stats(self, expression: str) -> Mapping[str, str]:
        text = await self._request("GET", "/stats", {"filter": expression})
        return dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)

    async def _request(self, method: str, path: str, query: Mapping[str, str] | None = None) -> str:
        try:
            async with self._client.request(method, f"http://envoy{path}", params=query) as response:
                return await response.text()
        except FAILURES as error:
            raise NotServing(f"Envoy does not respond at {self._folder / ADMIN_SOCKET} ({error!r})") from error

    def _connector(self) -> aiohttp.BaseConnector:
        # A path by the folder's descriptor is short; the folder's own may exceed the limit of socket addresses.
        self._descriptor = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return aiohttp.UnixConnector(f"/proc/self/fd/{self._descriptor}/{ADMIN_SOCKET}")


class VersionProbe:
    """A client of the gateway at `host:port`, whose route table responds with its version at `version_host`.

    Envoy's main thread applies a configuration, then passes it to its one worker, in order. So a response to a request
    that was sent after the main thread had the configuration proves that the worker has it too, and no later request is
    routed by an older one.
    """

    def __init__(self, host: str, port: int, version_host: str) -> None:
        self._headers = {"Host": version_host}
        self._url = f"http://{host}:{port}/"
        self._client = HttpClient(PROBE_TIMEOUT)

    async def version(self) -> str:
        """Return the version of the route table for requests from now on. Raises NotServing."""
        try:
            async with self._client.get(self._url, headers=self._headers) as response:
                return (await response.text()) if response.status == 200 else ""
        except FAILURES as error:
            raise NotServing(f"the gateway does not respond at {self._url} ({error!r})") from error

    async def close(self) -> None:
        """Close the connection. A later call opens a new one."""
        await self._client.close()
