"""Asks an endpoint's management port about its start: whether it has its model, and how long each stage took."""

from __future__ import annotations

import asyncio
import json

from clusters.base.clock import Clock
from clusters.embedded.activator.proxy.pool import ConnectFailed, ConnectionPool
from clusters.embedded.activator.proxy.timing import MS, Startup
from clusters.embedded.activator.proxy.upstream import UpstreamError
from clusters.net.endpoints import Endpoint

PATIENCE = 0.25  # s; an answer of the server's takes a millisecond
SIZE_LIMIT = 64 * 1024  # bytes; the page has some 300


async def startup_of(endpoint: Endpoint, pool: ConnectionPool, clock: Clock) -> Startup | None:
    """The server's own measurement, or None when it has none to tell: then the header goes without it."""
    try:
        async with asyncio.timeout(PATIENCE):
            return parse(await _get_stats(endpoint, pool), clock.monotonic())
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


def parse(page: bytes, now: float) -> Startup | None:
    """`startup` of a `/stats` page that came `now`, if it has one with sensible numbers.

    `{"imports", "load", "warmup": ms, "claimed": bool, "readyFor": ms since the load's end, or null}`; the last two
    only of members of warm pools.
    """
    try:
        startup = json.loads(page)["startup"]
        times = [float(startup.get(name) or 0.0) for name in ("imports", "load", "warmup", "readyFor")]
        known, claimed = startup.get("readyFor") is not None, bool(startup.get("claimed"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if not all(0.0 <= time < float("inf") for time in times):
        return None
    imports, load, warmup, ready_for = times
    return Startup(imports, load, warmup, claimed, now - ready_for / MS if known else None)
