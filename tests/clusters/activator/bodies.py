"""Read the body of an HTTP/1.1 request or response."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping


async def read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    """Return the whole body, by its length or its chunks. `headers` have lower-case names."""
    if headers.get("transfer-encoding") != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = b""
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body
