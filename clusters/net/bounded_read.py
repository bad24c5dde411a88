"""Bodies of answers of others, who may send without an end."""

from __future__ import annotations

import aiohttp


async def read_at_most(response: aiohttp.ClientResponse, most: int) -> bytes:
    """The body; of one that is longer than `most` bytes one byte more than that, and the connection is closed."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > most:
            response.close()
            break
    return bytes(body[: most + 1])
