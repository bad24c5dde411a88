"""Asks an endpoint's management port how long its start took: `load` and `warmup` of a cold start's Server-Timing."""

from __future__ import annotations

import asyncio
import json

from clusters.embedded.activator.pool import ConnectFailed, ConnectionPool
from clusters.embedded.activator.timing import Startup
from clusters.embedded.activator.upstream import UpstreamError
from clusters.endpoints import Endpoint

PATIENCE = 0.25  # s; an answer of the server's takes a millisecond
SIZE_LIMIT = 64 * 1024  # bytes; the page has some 300


async def startup_of(endpoint: Endpoint, pool: ConnectionPool) -> Startup | None:
    """The server's own measurement, or None when it has none to tell: then the header goes without it."""
    try:
        async with asyncio.timeout(PATIENCE):
            return parse(await _get_stats(endpoint, pool))
    except (TimeoutError, ConnectFailed, UpstreamError):
        return None


async def _get_stats(endpoint: Endpoint, pool: ConnectionPool) -> bytes:
    address = (endpoint.host, endpoint.management_port)
    connection = await pool.take(address)
    try:
        host = f"{endpoint.host}:{endpoint.management_port}"
        connection.send(f"GET /stats HTTP/1.1\r\nhost: {host}\r\n\r\n".encode(), head_only=False)
        await connection.response()
        page = b""
        while chunk := await connection.read():
            page += chunk
            if len(page) > SIZE_LIMIT:
                return b""
        return page
    finally:
        connection.close()


def parse(page: bytes) -> Startup | None:
    """`startup` of a `/stats` page, if it has one with sensible numbers."""
    try:
        startup = json.loads(page)["startup"]
        stages = [float(startup.get(name) or 0.0) for name in ("imports", "load", "warmup")]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return Startup(*stages) if all(0.0 <= stage < float("inf") for stage in stages) else None
