"""Forward the requests of `knodel dev` to the version that serves, so that clients see no switch: an ASGI application.

A connection of a client stays open while versions change. Each request goes to the version that serves when it comes,
and is finished there. While the first version loads, requests wait. When there is no version, they get 503 with the
reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import Any, Final

from clusters.base.errors import KnodelError
from clusters.embedded.activator.proxy.caller import CallerConnection
from clusters.embedded.activator.proxy.exchange import CallerDisconnected, Exchange, Receive, Send
from clusters.embedded.activator.proxy.headers import RawHeaders
from clusters.embedded.activator.proxy.pool import Address, ConnectFailed, UpstreamPool
from clusters.net.hosts import KnownHosts
from clusters.net.server.errors import error_body
from clusters.net.server.protocol import connection_of
from clusters.net.upstream import Headers, UpstreamConnection, UpstreamError

HOLD: Final = 300.0  # s that a request waits for a version, as on a platform
_GATEWAY_PATH: Final = re.compile(rb"/namespaces/[a-z0-9-]+/models/[a-z0-9-]+(?:@[^/?]*)?(?=/|$)")
"""The path of a model at the gateway of a platform, so that the same clients work here."""


class _NoVersion(KnodelError):
    """No version serves, and none is being loaded."""


class Upstream:
    """A version that receives requests; as a context manager, it has one more request inside the block."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._requests = 0
        self._fewer = asyncio.Event()

    def __enter__(self) -> None:
        self._requests += 1

    def __exit__(self, *_: object) -> None:
        self._requests -= 1
        self._fewer.set()

    async def wait_idle(self) -> None:
        """Return when it has no requests."""
        while self._requests:
            self._fewer.clear()
            await self._fewer.wait()


class DevProxy:
    """The ASGI application; `serve` and `refuse` change where requests go. `hosts` are the names of this server."""

    def __init__(self, hosts: KnownHosts | None) -> None:
        self._hosts = hosts
        self._pool = UpstreamPool()
        self._upstream: Upstream | None = None
        self._reason = ""
        self._changed = asyncio.Event()

    def serve(self, upstream: Upstream) -> None:
        """Send new requests to this version, and those that wait for one."""
        self._upstream = upstream
        self._notify()

    def refuse(self, reason: str) -> None:
        """Answer requests with 503 until a version serves; "" lets them wait for one."""
        self._upstream, self._reason = None, reason
        self._notify()

    def close(self) -> None:
        """Close the connections to the servers."""
        self._pool.close()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request, until its response is complete or the client disconnects."""
        caller = connection_of(scope, CallerConnection)
        task = asyncio.current_task()
        if task is None or caller.transport.is_closing():
            return
        caller.on_disconnect(task.cancel)
        scope["raw_path"] = _GATEWAY_PATH.sub(b"", scope["raw_path"], count=1)
        exchange = Exchange(scope, receive, send)
        try:
            if refusal := self._refusal(scope["headers"]):
                await _respond(exchange, 403, refusal)
            else:
                await self._forward(exchange, caller)
        except CallerDisconnected:
            caller.abort()
        except UpstreamError as error:
            if exchange.responded:
                caller.abort()  # so that the client does not take a partial response for a complete one
            else:
                await _respond(exchange, 502, f"the model's process ended during the request: {error}")
        except asyncio.CancelledError:
            if not caller.transport.is_closing():
                raise
        finally:
            caller.on_disconnect(None)

    async def _forward(self, exchange: Exchange, caller: CallerConnection) -> None:
        await exchange.begin()
        try:
            async with asyncio.timeout(HOLD) as holding:
                upstream, connection = await self._connect()
                holding.reschedule(None)
        except TimeoutError:
            await _respond(exchange, 503, f"the model was not loaded within {HOLD:g} s")
            return
        except _NoVersion as error:
            await _respond(exchange, 503, f"the model is not loaded: {error}")
            return
        if caller.unread:
            caller.enlarge_buffer()
        with upstream:
            try:
                await exchange.run(connection, b"", _no_headers)
            finally:
                self._pool.give(upstream.address, connection)

    async def _connect(self) -> tuple[Upstream, UpstreamConnection]:
        """Return the version that serves, with a connection to it; wait for one. Raises _NoVersion."""
        while True:
            changed, upstream = self._changed, self._upstream
            if upstream is not None:
                with upstream, contextlib.suppress(ConnectFailed):  # it has ended: wait for the next one
                    return upstream, await self._pool.take(upstream.address)
            elif self._reason:
                raise _NoVersion(self._reason)
            await changed.wait()

    def _refusal(self, headers: RawHeaders) -> str | None:
        """Return why a web page of another machine may not send this request; None if it may, or is none."""
        named = {name: value.decode("latin-1") for name, value in headers if name in (b"host", b"origin")}
        return None if self._hosts is None else self._hosts.refusal(named.get(b"host"), named.get(b"origin"))

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


async def _no_headers() -> Headers:
    return []


async def _respond(exchange: Exchange, status: int, reason: str) -> None:
    body = error_body(reason)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await exchange.respond(status, headers, body)
