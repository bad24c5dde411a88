"""Whether an endpoint has its model, asked before the first request goes there, as Knative's activator probes a Pod.

A member of a warm pool takes requests as soon as it is claimed and holds them until its model is loaded. If it died
then, they would be lost: whether a request that was sent was worked on cannot be known. So requests wait here instead,
and the wait itself is a request that nobody misses: `GET /v2` on the data port, which such a server holds as any other.
A server that does not answer `/stats` as ours does (a user's own) is sent requests at once.
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
    """What a probe found. `fault`: why no request may go there, empty when one may. `waited`: for the model's load.

    `startup`: the server's measurement, None where there is none yet.
    """

    fault: str = ""
    waited: bool = False
    startup: Startup | None = None


async def probe(endpoint: Endpoint, pool: ConnectionPool, clock: Clock) -> Probed:
    """Return once the endpoint has its model, or is known to get none. Raises nothing."""
    startup = await startup_of(endpoint, pool, clock)
    if startup is None or not startup.loading:
        return Probed(startup=startup)
    return Probed(await _await_load(endpoint, pool), waited=True)


async def _await_load(endpoint: Endpoint, pool: ConnectionPool) -> str:
    """Why it has no model; empty when it has one. Takes as long as the server holds the question."""
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
