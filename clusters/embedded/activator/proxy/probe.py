"""Probe whether an endpoint has its model before its first request, as Knative's activator probes a Pod.

A claimed member of a warm pool accepts requests at once and holds them until its model is loaded. If it crashed then,
they would be lost, because a request that was sent may have been executed. So requests wait here instead. The probe is
a request that may be lost: `GET /v2` on the data port, which such a server holds like any other. A server without our
`/stats` (a user's own) gets requests at once.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

from clusters.base.clock import Clock
from clusters.embedded.activator.proxy.pool import ConnectFailed, UpstreamPool
from clusters.embedded.activator.proxy.timing import MS, Startup
from clusters.net.endpoints import Endpoint
from clusters.net.upstream import UpstreamError

NOT_READY = 503  # status of a server whose load failed, or did not end in time
STATS_TIMEOUT = 0.25  # s; the server answers within a millisecond
STATS_LIMIT = 64 * 1024  # bytes; the page has about 300


@dataclass(frozen=True, slots=True)
class ReadinessResult:
    """The result of a probe.

    `fault`: why the endpoint cannot serve requests, or empty. `waited`: the model was still being loaded. `startup`:
    the server's measurement of its start, None if there is none yet.
    """

    fault: str = ""
    waited: bool = False
    startup: Startup | None = None


async def probe(endpoint: Endpoint, pool: UpstreamPool, clock: Clock) -> ReadinessResult:
    """Wait until the endpoint has its model or has failed. Raises nothing."""
    startup = await get_startup(endpoint, pool, clock)
    if startup is None or not startup.loading:
        return ReadinessResult(startup=startup)
    return ReadinessResult(await _wait_for_load(endpoint, pool), waited=True)


async def _wait_for_load(endpoint: Endpoint, pool: UpstreamPool) -> str:
    """Return why the endpoint has no model, or an empty string, once the server has answered `GET /v2`."""
    address = (endpoint.host, endpoint.port)
    try:
        connection = await pool.take(address)
        try:
            connection.send(
                f"GET /v2 HTTP/1.1\r\nhost: {endpoint.host}:{endpoint.port}\r\n\r\n".encode(), head_only=False
            )
            status, _ = await connection.response()
            while await connection.read():
                pass
        finally:
            pool.give(address, connection)
    except (ConnectFailed, UpstreamError) as error:
        return f"it ended while it loaded its model: {error}"
    return "it could not load its model" if status == NOT_READY else ""


async def get_startup(endpoint: Endpoint, pool: UpstreamPool, clock: Clock) -> Startup | None:
    """Return the server's measurement of its start from `/stats` of its management port, or None without one."""
    connection = None
    try:
        async with asyncio.timeout(STATS_TIMEOUT):
            connection = await pool.take((endpoint.host, endpoint.management_port))
            host = f"{endpoint.host}:{endpoint.management_port}"
            connection.send(f"GET /stats HTTP/1.1\r\nhost: {host}\r\n\r\n".encode(), head_only=False)
            await connection.response()
            page = b""
            while chunk := await connection.read():
                page += chunk
                if len(page) > STATS_LIMIT:
                    return None
            return parse_startup(page, clock.monotonic())
    except (TimeoutError, ConnectFailed, UpstreamError):
        return None
    finally:
        if connection is not None:
            connection.close()


def parse_startup(page: bytes, now: float) -> Startup | None:
    """Return `startup` of a `/stats` page that was received at `now`, or None if it is absent or invalid.

    It is `{"imports", "load", "warmup": ms, "claimed": bool, "readyFor": ms since the end of the load, or null}`. Only
    members of warm pools have the last two.
    """
    try:
        startup = json.loads(page)["startup"]
        times = [float(startup.get(name) or 0.0) for name in ("imports", "load", "warmup", "readyFor")]
        is_loaded, claimed = startup.get("readyFor") is not None, bool(startup.get("claimed"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if not all(0.0 <= time < float("inf") for time in times):
        return None
    imports, load, warmup, ready_for = times
    return Startup(imports, load, warmup, claimed, now - ready_for / MS if is_loaded else None)
