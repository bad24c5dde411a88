"""Probe whether an endpoint has its model before its first request, as Knative's activator probes a Pod.

A claimed member of a warm pool accepts requests at once and holds them until its model is loaded. If it crashed then,
they would be lost, because a request that was sent may have been executed. So requests wait here instead. The probe is
a request that may be lost: `GET /v2` on the data port, which such a server holds as any other. A server without our
`/stats` (a user's own) gets requests at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from clusters.base.clock import Clock
from clusters.embedded.activator.proxy.pool import ConnectFailed, ConnectionPool
from clusters.embedded.activator.proxy.startup import startup_of
from clusters.embedded.activator.proxy.timing import Startup
from clusters.embedded.activator.proxy.upstream import UpstreamError
from clusters.net.endpoints import Endpoint

NOT_READY = 503  # of a server whose load failed, or did not end in time


@dataclass(frozen=True, slots=True)
class Probed:
    """The result of a probe. `fault` is why the endpoint cannot have requests, or empty. `waited`: it had to load.

    `startup`: the server's measurement, None where there is none yet.
    """

    fault: str = ""
    waited: bool = False
    startup: Startup | None = None


async def probe(endpoint: Endpoint, pool: ConnectionPool, clock: Clock) -> Probed:
    """Wait until the endpoint has its model or has failed. Raises nothing."""
    startup = await startup_of(endpoint, pool, clock)
    if startup is None or not startup.loading:
        return Probed(startup=startup)
    return Probed(await _await_load(endpoint, pool), waited=True)


async def _await_load(endpoint: Endpoint, pool: ConnectionPool) -> str:
    """Return why it has no model, or an empty string. It takes as long as the server holds the request."""
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
