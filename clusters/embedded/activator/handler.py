"""Forward requests: hold, choose an endpoint, send, stream the response. An ASGI application on `CallerConnection`.

A request is sent at most once. Before its first byte is sent (no connection, or no model yet), it is retried at another
endpoint or returns to the front of the queue. After that, a failure is reported to the caller as 502. A caller that
disconnects cancels its request at any stage.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from clusters.base.clock import Clock
from clusters.base.errors import KnodelError
from clusters.embedded.activator.proxy.caller import CallerConnection
from clusters.embedded.activator.proxy.errors import HoldExpired, error_response
from clusters.embedded.activator.proxy.exchange import CallerDisconnected, Exchange, Receive, Scope, Send
from clusters.embedded.activator.proxy.headers import is_from_gateway, revision_of
from clusters.embedded.activator.proxy.pool import ConnectFailed, UpstreamPool
from clusters.embedded.activator.proxy.probe import ReadinessResult, get_startup, probe
from clusters.embedded.activator.proxy.timing import RequestTimes, Startup, header, stages
from clusters.embedded.activator.throttler import PendingRequest, Reservation, RevisionThrottler, Throttler
from clusters.net.server.protocol import connection_of
from clusters.net.upstream import Headers, UpstreamConnection, UpstreamError

log = logging.getLogger(__name__)

DISCONNECT_POLL = 1.0  # s between checks for a disconnect of a held caller whose body is not being read
LONGEST_PATH = 200  # characters of a path in the log
STARTUP_TIMEOUT = 0.02  # s; `/stats` was requested when the request was sent, so it is received before the response


class ActivationHandler:
    """The ASGI application; `token` is the activator's own (`clusters.gateway.token`)."""

    def __init__(self, throttler: Throttler, pool: UpstreamPool, clock: Clock, token: str) -> None:
        self._token = token.encode()
        self._throttler = throttler
        self._pool = pool
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, until its response is complete or the caller disconnects."""
        caller = connection_of(scope, CallerConnection)
        task = asyncio.current_task()
        if task is None or caller.transport.is_closing():
            return
        caller.on_disconnect(task.cancel)
        try:
            await self._serve(Exchange(scope, receive, send), scope, caller)
        except asyncio.CancelledError:
            if not caller.transport.is_closing():  # not a disconnect: the process is being stopped
                raise
        finally:
            caller.on_disconnect(None)

    async def _serve(self, exchange: Exchange, scope: Scope, caller: CallerConnection) -> None:
        try:
            await self._forward(exchange, scope, caller)
        except CallerDisconnected:
            caller.abort()
        except KnodelError as error:
            level = logging.INFO if isinstance(error, UpstreamError) else logging.DEBUG  # there may be thousands of 429
            log.log(level, "%s: %s", _path_of(scope), error)
            await _respond(exchange, caller, error)
        except Exception as error:  # so that this response is JSON, too, and not the HTTP server's own page
            log.exception("%s: not forwarded", _path_of(scope))
            await _respond(exchange, caller, KnodelError(f"the activator failed: {type(error).__name__}: see its log"))

    async def _forward(self, exchange: Exchange, scope: Scope, caller: CallerConnection) -> None:
        arrived = self._clock.monotonic()
        revision = await self._throttler.revision(revision_of(scope["headers"]))
        request = revision.new_request(arrived)
        upstream = await self._connect(revision, request, exchange, caller)
        reservation = upstream.reservation
        endpoint = reservation.endpoint
        try:
            timing = _ServerTiming(request, upstream, self._pool, self._clock)
            token = endpoint.token if is_from_gateway(scope["headers"], self._token) else ""
            await exchange.run(upstream.connection, token.encode(), timing.headers)
        finally:
            self._pool.give((endpoint.host, endpoint.port), upstream.connection)
            reservation.release()

    async def _connect(
        self, revision: RevisionThrottler, request: PendingRequest, exchange: Exchange, caller: CallerConnection
    ) -> _Upstream:
        """Return a slot at an endpoint and a connection to it. Endpoints that refuse are skipped for a while."""
        while True:
            watch = asyncio.create_task(_abort_on_disconnect(caller)) if caller.unread else None
            try:
                reservation, probed = await self._reserve(revision, request)
            finally:
                if watch is not None:
                    watch.cancel()
            endpoint = reservation.endpoint
            try:
                if probed.fault:
                    raise ConnectFailed(probed.fault)
                if caller.unread:
                    if caller.is_disconnected:
                        raise CallerDisconnected
                    caller.enlarge_buffer()
                await exchange.begin()
                connection = await self._pool.take((endpoint.host, endpoint.port))
            except ConnectFailed as error:
                log.info("%s: %s", endpoint.pod, error)
                reservation.refused(request)
                continue
            except BaseException:
                reservation.release()
                raise
            reservation.connected()
            return _Upstream(reservation, connection, probed.startup)

    async def _reserve(
        self, revision: RevisionThrottler, request: PendingRequest
    ) -> tuple[Reservation, ReadinessResult]:
        """Return a slot at an endpoint and the result of its probe. Raises as `RevisionThrottler.reserve` does."""
        reservation = await revision.reserve(request)
        try:
            async with asyncio.timeout(max(0.0, request.deadline - self._clock.monotonic())):
                probed = await reservation.probed(lambda endpoint: probe(endpoint, self._pool, self._clock))
        except TimeoutError as error:
            reservation.release()
            raise HoldExpired(f"{reservation.endpoint.pod} did not load its model in time") from error
        except BaseException:
            reservation.release()
            raise
        request.held = request.held or probed.waited
        return reservation, probed


@dataclass(frozen=True, slots=True)
class _Upstream:
    """A slot at an endpoint, a connection to it, and the startup that its probe returned, if any."""

    reservation: Reservation
    connection: UpstreamConnection
    startup: Startup | None


class _ServerTiming:
    """Measure one request from the moment when it is sent to the endpoint."""

    def __init__(self, request: PendingRequest, upstream: _Upstream, pool: UpstreamPool, clock: Clock) -> None:
        self._clock = clock
        self._request = request
        self._upstream = upstream
        self._sent = clock.monotonic()
        self._startup: asyncio.Task[Startup | None] | None = None
        if request.held and request.first and upstream.startup is None:
            self._startup = asyncio.create_task(get_startup(upstream.reservation.endpoint, pool, clock))

    async def headers(self) -> Headers:
        """Return `Server-Timing` if the request was held, or no header. Called when the response begins."""
        request = self._request
        if not request.held:
            return []
        startup = self._upstream.startup
        if self._startup is not None:
            done, _ = await asyncio.wait({self._startup}, timeout=STARTUP_TIMEOUT)
            startup = self._startup.result() if done else None
        since = self._upstream.reservation.endpoint_since
        times = RequestTimes(request.arrived, self._sent, self._clock.monotonic(), request.first, since)
        return [(b"server-timing", header(stages(times, startup)))]


def _path_of(scope: Scope) -> str:
    """Return the encoded path for the log: a decoded one might have several lines."""
    path: bytes = scope["raw_path"][:LONGEST_PATH]
    return path.decode("ascii", "backslashreplace")


async def _respond(exchange: Exchange, caller: CallerConnection, error: KnodelError) -> None:
    """Send the error, or abort a response that has begun, so that the caller does not take it for complete."""
    if exchange.responded:
        caller.abort()
        return
    response = error_response(error)
    await exchange.respond(response.status, list(response.headers), response.body)


async def _abort_on_disconnect(caller: CallerConnection) -> None:
    """Poll the kernel for a disconnect, which the event loop does not report while the body is not being read."""
    while True:
        await asyncio.sleep(DISCONNECT_POLL)
        if caller.is_disconnected:
            caller.abort()
