"""Forward requests: hold, choose an endpoint, send, stream back. A raw ASGI application on `CallerConnection`.

A request is passed on at most once: while no byte of it was sent (no connection, or no model there yet) it goes to
another endpoint or back to the front of the queue; after that a fault is the caller's to judge (502). A caller that
leaves cancels its request at any stage.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from clusters.base.clock import Clock
from clusters.base.errors import KnodelError
from clusters.embedded.activator.proxy.answers import answer_to
from clusters.embedded.activator.proxy.caller import CallerConnection, caller_of
from clusters.embedded.activator.proxy.errors import HoldExpired
from clusters.embedded.activator.proxy.exchange import CallerLeft, Exchange, Receive, Scope, Send
from clusters.embedded.activator.proxy.headers import is_from_gateway, revision_of
from clusters.embedded.activator.proxy.pool import ConnectFailed, ConnectionPool
from clusters.embedded.activator.proxy.probe import Probed, probe
from clusters.embedded.activator.proxy.startup import startup_of
from clusters.embedded.activator.proxy.timing import Held, Startup, header, stages
from clusters.embedded.activator.proxy.upstream import Headers, UpstreamConnection, UpstreamError
from clusters.embedded.activator.throttle import Lease, RevisionThrottle
from clusters.embedded.activator.throttler import Throttler
from clusters.embedded.activator.ticket import Ticket
from clusters.net.endpoints import Endpoint

log = logging.getLogger(__name__)

GONE_POLL = 1.0  # s; how often a held caller is looked after that may leave unseen, as its body is not being read
LONGEST_PATH = 200  # characters of a path in the log
STARTUP_PATIENCE = 0.02  # s; the stats page was asked for when the request was sent and is there before the answer


class Activator:
    """The ASGI application; `token` is the activator's own (`clusters.gateway.token`)."""

    def __init__(self, throttler: Throttler, pool: ConnectionPool, clock: Clock, token: str) -> None:
        self._token = token.encode()
        self._throttler = throttler
        self._pool = pool
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; the caller's leaving ends it quietly."""
        caller = caller_of(scope)
        task = asyncio.current_task()
        if task is None or caller.transport.is_closing():
            return
        caller.when_gone(task.cancel)
        try:
            await self._serve(Exchange(scope, receive, send), scope, caller)
        except asyncio.CancelledError:
            if not caller.transport.is_closing():  # not the caller's doing: the process is being stopped
                raise
        finally:
            caller.when_gone(None)

    async def _serve(self, exchange: Exchange, scope: Scope, caller: CallerConnection) -> None:
        try:
            await self._forward(exchange, scope, caller)
        except CallerLeft:
            caller.abort()
        except KnodelError as error:
            level = logging.INFO if isinstance(error, UpstreamError) else logging.DEBUG  # refusals come by the thousand
            log.log(level, "%s: %s", _shown(scope), error)
            await _end(exchange, caller, error)
        except Exception as error:  # the frame: all errors are JSON, and uvicorn's own answer is not
            log.exception("%s: not passed on", _shown(scope))
            await _end(exchange, caller, KnodelError(f"the activator failed: {type(error).__name__}: see its log"))

    async def _forward(self, exchange: Exchange, scope: Scope, caller: CallerConnection) -> None:
        arrived = self._clock.monotonic()
        revision = await self._throttler.revision(revision_of(scope["headers"]))
        ticket = revision.arrive(arrived)
        way = await self._connect(revision, ticket, exchange, caller)
        lease = way.lease
        try:
            timing = _Timing(ticket, way, self._pool, self._clock)
            token = lease.endpoint.token if is_from_gateway(scope["headers"], self._token) else ""
            await exchange.run(way.connection, token.encode(), timing.headers)
        finally:
            self._pool.give((lease.endpoint.host, lease.endpoint.port), way.connection)
            lease.release()

    async def _connect(
        self, revision: RevisionThrottle, ticket: Ticket, exchange: Exchange, caller: CallerConnection
    ) -> _Way:
        """Room at an endpoint, and a connection to it; endpoints without are left aside and others tried."""
        while True:
            lease, probed = await self._watched(revision, ticket, caller)
            try:
                if probed.fault:
                    raise ConnectFailed(probed.fault)
                if caller.unread:
                    _welcome(caller)
                await exchange.begin()
                connection = await self._pool.take((lease.endpoint.host, lease.endpoint.port))
            except ConnectFailed as error:
                log.info("%s: %s", lease.endpoint.pod, error)
                lease.refused(ticket)
                continue
            except BaseException:
                lease.release()
                raise
            lease.accepted()
            return _Way(lease, connection, probed.startup)

    async def _watched(
        self, revision: RevisionThrottle, ticket: Ticket, caller: CallerConnection
    ) -> tuple[Lease, Probed]:
        if not caller.unread:
            return await self._lease(revision, ticket)
        watch = asyncio.create_task(_watch(caller))
        try:
            return await self._lease(revision, ticket)
        finally:
            watch.cancel()

    async def _lease(self, revision: RevisionThrottle, ticket: Ticket) -> tuple[Lease, Probed]:
        """Room at an endpoint, and what its probe found. Raises as `RevisionThrottle.lease` does."""
        lease = await revision.lease(ticket)
        try:
            async with asyncio.timeout(max(0.0, ticket.deadline - self._clock.monotonic())):
                probed = await lease.probed(self._probe)
        except TimeoutError as error:
            lease.release()
            raise HoldExpired(f"{lease.endpoint.pod} did not load its model in time") from error
        except BaseException:
            lease.release()
            raise
        ticket.held = ticket.held or probed.waited
        return lease, probed

    async def _probe(self, endpoint: Endpoint) -> Probed:
        return await probe(endpoint, self._pool, self._clock)


@dataclass(frozen=True, slots=True)
class _Way:
    """Where a request is passed on to; `startup` is known of an endpoint that had its model when it was probed."""

    lease: Lease
    connection: UpstreamConnection
    startup: Startup | None


class _Timing:
    """Measures one request from the moment in which it is passed on."""

    def __init__(self, ticket: Ticket, way: _Way, pool: ConnectionPool, clock: Clock) -> None:
        self._clock = clock
        self._ticket = ticket
        self._way = way
        self._sent = clock.monotonic()
        ask = ticket.held and ticket.first and way.startup is None
        self._asked = asyncio.create_task(startup_of(way.lease.endpoint, pool, clock)) if ask else None

    async def headers(self) -> Headers:
        """`Server-Timing` when the request was held, nothing when it was not."""
        if not self._ticket.held:
            return []
        startup = await self._measured()
        answered = self._clock.monotonic()
        ticket = self._ticket
        held = Held(ticket.arrived, self._sent, answered, ticket.first, self._way.lease.endpoint_since)
        return [(b"server-timing", header(stages(held, startup)))]

    async def _measured(self) -> Startup | None:
        if self._asked is None:
            return self._way.startup
        done, _ = await asyncio.wait({self._asked}, timeout=STARTUP_PATIENCE)
        return self._asked.result() if done else None


def _shown(scope: Scope) -> str:
    """Return the encoded path for the log: a decoded one might have several lines."""
    path: bytes = scope["raw_path"][:LONGEST_PATH]
    return path.decode("ascii", "backslashreplace")


async def _end(exchange: Exchange, caller: CallerConnection, error: KnodelError) -> None:
    """Tell the caller; one that has part of an answer already is cut off, so that it does not take it for the whole."""
    if exchange.answered:
        caller.abort()
        return
    answer = answer_to(error)
    await exchange.reply(answer.status, list(answer.headers), answer.body)


def _welcome(caller: CallerConnection) -> None:
    """Read the body from here on, if the caller is still connected."""
    if caller.gone:
        raise CallerLeft
    caller.widen()


async def _watch(caller: CallerConnection) -> None:
    """Poll the kernel for a caller that left while its body is not being read: the event loop does not report it."""
    while True:
        await asyncio.sleep(GONE_POLL)
        if caller.gone:
            caller.abort()
