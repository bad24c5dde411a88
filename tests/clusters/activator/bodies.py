"""A body on the wire of HTTP/1.1, of a request or an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping


async def read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    """All of it, by length or chunks; `headers` have lower-case names."""
    if headers.get("transfer-encoding") != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = b""
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body
