"""Determine the configuration in force through the gateway's own listener.

Envoy's main thread applies a configuration, then passes it to its one worker, in order. So a response to a request that
was sent after the main thread had the configuration proves that the worker has it too, and no later request is routed
by an older one.
"""

from __future__ import annotations

from typing import Final

from clusters.gateway.errors import NotServing
from clusters.net.client import FAILURES, HttpClient

TIMEOUT: Final = 2.0  # s; the listener itself responds, in 0.1 ms


class VersionProbe:
    """A client of the gateway at `host:port`, whose route table responds with its version at `version_host`."""

    def __init__(self, host: str, port: int, version_host: str) -> None:
        self._headers = {"Host": version_host}
        self._url = f"http://{host}:{port}/"
        self._client = HttpClient(TIMEOUT)

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
