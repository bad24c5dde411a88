"""Asks the gateway, through its own listener, which configuration is in force.

Envoy's main thread takes a configuration over, then hands it to its one worker, in order. An answer to a request that
was sent after the main thread had the configuration therefore proves that the worker has it: no later request is
routed by an older one.
"""

from __future__ import annotations

import asyncio
from typing import Final

import aiohttp

from clusters.gateway.errors import NotServing

TIMEOUT: Final = 2.0  # s; the answer is made in the listener, in 0.1 ms


class Probe:
    """A client of the gateway at `host:port`, whose route table answers its version at `version_host`."""

    def __init__(self, host: str, port: int, version_host: str) -> None:
        self._headers = {"Host": version_host}
        self._url = f"http://{host}:{port}/"
        self._session: aiohttp.ClientSession | None = None

    async def version(self) -> str:
        """The version of the route table by which requests are routed from now on. Raises NotServing."""
        if self._session is None:
            self._session = aiohttp.ClientSession()
        try:
            async with asyncio.timeout(TIMEOUT):
                async with self._session.get(self._url, headers=self._headers) as response:
                    return (await response.text()) if response.status == 200 else ""
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise NotServing(f"the gateway does not answer at {self._url} ({error!r})") from error

    async def close(self) -> None:
        """Let the connection go; who asks meanwhile gets a new one."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
