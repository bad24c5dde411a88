"""The request path: hold, choose an endpoint, pass on, stream back. A raw ASGI application on `CallerConnection`.

A request is passed on at most once: while no byte of it was sent (no connection) it goes to another endpoint or back to
the front of the queue; after that a fault is the caller's to judge (502). A caller that leaves cancels all of it,
wherever it stands.
"""

from __future__ import annotations

import asyncio
import logging

from clusters.clock import Clock
from clusters.embedded.activator.answers import answer_to
from clusters.embedded.activator.caller import CallerConnection, caller_of
from clusters.embedded.activator.exchange import CallerLeft, Exchange, Receive, Scope, Send
from clusters.embedded.activator.headers import revision_of
from clusters.embedded.activator.pool import ConnectFailed, ConnectionPool
from clusters.embedded.activator.startup import startup_of
from clusters.embedded.activator.throttle import Lease, RevisionThrottle, Ticket
from clusters.embedded.activator.throttler import Throttler
from clusters.embedded.activator.timing import Held, Startup, header, stages
from clusters.embedded.activator.upstream import Headers, UpstreamConnection, UpstreamError
from clusters.errors import KnodelError

log = logging.getLogger(__name__)

GONE_POLL = 1.0  # s; how often a held caller is looked after that may leave unseen, as its body is not being read
STARTUP_PATIENCE = 0.02  # s; the stats page was asked for when the request was sent and is there before the answer


class Activator:
    """The ASGI application."""

    def __init__(self, throttler: Throttler, pool: ConnectionPool, clock: Clock) -> None:
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
            log.log(level, "%s: %s", scope["path"], error)
            await _end(exchange, caller, error)
        except Exception as error:  # the frame: all errors are JSON, and uvicorn's own answer is not
            log.exception("%s: not passed on", scope["path"])
            await _end(exchange, caller, KnodelError(f"the activator failed: {type(error).__name__}: see its log"))

    async def _forward(self, exchange: Exchange, scope: Scope, caller: CallerConnection) -> None:
        arrived = self._clock.monotonic()
        revision = await self._throttler.revision(revision_of(scope["headers"]))
        ticket = revision.arrive(arrived)
        lease, connection = await self._connect(revision, ticket, exchange, caller)
        try:
            timing = _Timing(ticket, lease, self._pool, self._clock)
            await exchange.run(connection, timing.headers)
        finally:
            self._pool.give((lease.endpoint.host, lease.endpoint.port), connection)
            lease.release()

    async def _connect(
        self, revision: RevisionThrottle, ticket: Ticket, exchange: Exchange, caller: CallerConnection
    ) -> tuple[Lease, UpstreamConnection]:
        """Room at an endpoint, and a connection to it; endpoints without are left aside and others tried."""
        while True:
            lease = await self._lease(revision, ticket, caller)
            try:
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
            return lease, connection

    async def _lease(self, revision: RevisionThrottle, ticket: Ticket, caller: CallerConnection) -> Lease:
        if not caller.unread:
            return await revision.lease(ticket)
        watch = asyncio.create_task(_watch(caller))
        try:
            return await revision.lease(ticket)
        finally:
            watch.cancel()


class _Timing:
    """Measures one request from the moment in which it is passed on."""

    def __init__(self, ticket: Ticket, lease: Lease, pool: ConnectionPool, clock: Clock) -> None:
        self._clock = clock
        self._ticket = ticket
        self._lease = lease
        self._sent = clock.monotonic()
        woke = ticket.held and ticket.first
        self._startup = asyncio.create_task(startup_of(lease.endpoint, pool)) if woke else None

    async def headers(self) -> Headers:
        """`Server-Timing` when the request was held, nothing when it was not."""
        if not self._ticket.held:
            return []
        startup = await self._measured()
        answered = self._clock.monotonic()
        ticket = self._ticket
        held = Held(ticket.arrived, self._sent, answered, ticket.first, self._lease.endpoint_since)
        return [(b"server-timing", header(stages(held, startup)))]

    async def _measured(self) -> Startup | None:
        if self._startup is None:
            return None
        done, _ = await asyncio.wait({self._startup}, timeout=STARTUP_PATIENCE)
        return self._startup.result() if done else None


async def _end(exchange: Exchange, caller: CallerConnection, error: KnodelError) -> None:
    """Tell the caller; one that has part of an answer already is cut off, so that it does not take it for the whole."""
    if exchange.answered:
        caller.abort()
        return
    answer = answer_to(error)
    await exchange.reply(answer.status, list(answer.headers), answer.body)


def _welcome(caller: CallerConnection) -> None:
    """A body comes in from here on, if there is still somebody who sends it."""
    if caller.gone:
        raise CallerLeft
    caller.widen()


async def _watch(caller: CallerConnection) -> None:
    """Notice that a caller left whose body is not being read: no event tells of it, only the kernel when asked."""
    while True:
        await asyncio.sleep(GONE_POLL)
        if caller.gone:
            caller.abort()
