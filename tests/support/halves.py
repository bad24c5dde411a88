"""A server of HTTP whose answer comes in two halves: a download that can be looked at in its middle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


def in_halves(
    content: bytes, rest: asyncio.Event
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """For `asyncio.start_server`: half of the content at once, what is left of it with `rest`."""
    half = len(content) // 2

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(content) + content[:half])
        await rest.wait()
        writer.write(content[half:])
        writer.close()

    return serve
