"""A kept HTTP client session, for whoever asks Pods and Services."""

from __future__ import annotations

from collections.abc import Callable

import aiohttp

IDENTITY = {"Accept-Encoding": "identity"}
"""Ask for answers without a coding: their size is bounded as they come, so nothing inflates them."""


class Session:
    """Made in the loop that uses it; `timeout` in seconds holds for the whole of one answer, which stays as it came."""

    def __init__(self, timeout: float, connector: Callable[[], aiohttp.BaseConnector]) -> None:
        self._timeout = timeout
        self._connector = connector
        self._session: aiohttp.ClientSession | None = None

    def open(self) -> aiohttp.ClientSession:
        """The session, a new one after `close`."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=self._connector(),
                timeout=aiohttp.ClientTimeout(total=self._timeout),
                headers=IDENTITY,
                auto_decompress=False,
            )
        return self._session

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None
