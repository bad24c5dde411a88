"""An aiohttp client session that opens on first use, and bounded reads of response bodies."""

from __future__ import annotations

from collections.abc import Callable

import aiohttp

IDENTITY = {"Accept-Encoding": "identity"}
"""Request uncompressed responses: their size is bounded on the wire, and nothing decompresses them."""


class LazySession:
    """A client session, opened on first use. `timeout` (s) bounds a whole request; bodies are not decompressed.

    Construct it anywhere, but call `open` in the event loop that uses it.
    """

    def __init__(self, timeout: float, connector: Callable[[], aiohttp.BaseConnector]) -> None:
        self._timeout = timeout
        self._connector = connector
        self._session: aiohttp.ClientSession | None = None

    def open(self) -> aiohttp.ClientSession:
        """Return the session; after `close`, a new one."""
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


async def read_at_most(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Return the body of a response, whose server may send without end.

    Of a body longer than `most` bytes it returns `most` + 1 bytes and closes the connection.
    """
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > most:
            response.close()
            break
    return bytes(body[: most + 1])
