"""An exchange with an engine that is a server of its own: one request, sent once, and its response.

Nothing is sent to the engine before the request has a slot. A caller that disconnects ends the request in the engine at
once. Nothing is sent twice.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from functools import partial
from typing import Final

from clusters.net import unix_sockets
from clusters.net.server.connection import HttpConnection
from clusters.net.upstream import UpstreamConnection, UpstreamError
from serving.engines.base.errors import EngineError
from serving.engines.upstream.client import Address, tls_context
from serving.engines.upstream.remote import RemoteEngine
from serving.modelserver.base.errors import ClientLeft, DeadlineExceeded, ModelFailed, ServingError
from serving.modelserver.execution.inference import RequestContext
from serving.modelserver.openai.errors import EngineRestarts

BACKLOG_PAUSE: Final = 0.005  # s until the next attempt to connect to an engine that has too many new connections


class Waker:
    """Wakes an engine for all requests that wait for it, in one thread."""

    def __init__(self) -> None:
        self._engine: RemoteEngine | None = None
        self._waking: asyncio.Task[EngineError | None] | None = None

    def wake(self, engine: RemoteEngine) -> asyncio.Task[EngineError | None]:
        """Return the task that wakes the engine; its result is the error, since requests that wait may have gone."""
        if self._waking is None or self._waking.done() or self._engine is not engine:
            self._engine = engine
            self._waking = asyncio.create_task(asyncio.to_thread(_wake, engine))
        return self._waking


def _wake(engine: RemoteEngine) -> EngineError | None:
    try:
        engine.wake()
    except EngineError as error:
        return error
    return None


class Exchange(ABC):
    """One request to the engine and its response."""

    def __init__(self, engine: RemoteEngine, request: RequestContext, client: HttpConnection, waker: Waker) -> None:
        self._engine = engine
        self._request = request
        self._client = client
        self._waker = waker
        self._loop = asyncio.get_running_loop()
        self._stops: asyncio.Future[None] = self._loop.create_future()
        self._connection: UpstreamConnection | None = None
        self._stopped: ServingError | None = None
        self._sending = False  # whether a piece is being sent to the caller

    async def run(self, body: bytes) -> None:
        """Send `body` and pass the response on. Raises ServingError if nothing was sent to the caller."""
        late = DeadlineExceeded(f"no complete answer within {self._request.timeout:g} s")
        timer = self._loop.call_at(self._request.deadline, self._stop, late)
        self._client.on_disconnect(partial(self._stop, ClientLeft()))
        try:
            address = await self._enter()
            try:
                connection = self._connection = await self._connect(address)
                self._check()
                await self._exchange(connection, address, body)
            finally:
                self._engine.leave()
        except UpstreamError as error:
            raise self._stopped or ModelFailed(f"the engine broke off the request: {error}") from error
        finally:
            timer.cancel()
            self._client.on_disconnect(None)
            if self._connection is not None:
                self._connection.close()

    @abstractmethod
    async def _exchange(self, connection: UpstreamConnection, address: Address, body: bytes) -> None:
        """Send the request and pass the response on. Raises UpstreamError, ServingError."""

    async def _enter(self) -> Address:
        """Return where to send the request, counted in the engine, once it is awake. Raises ServingError."""
        engine = self._engine
        try:
            while (address := engine.enter()) is None:
                waking = self._waker.wake(engine)
                await asyncio.wait((waking, self._stops), return_when=asyncio.FIRST_COMPLETED)
                self._check()
                if (failed := waking.result()) is not None:
                    raise failed
        except EngineError as error:
            reason = engine.state.reason or f"the engine sleeps and could not be woken ({error}): try again"
            raise EngineRestarts(reason) from error
        return address

    async def _connect(self, address: Address) -> UpstreamConnection:
        """Connect to the engine, once it has room for a connection that it has not accepted. Raises ServingError."""
        try:
            while not address.port:
                try:
                    connected = unix_sockets.connect(address.socket, timeout=0.0)
                except BlockingIOError:  # unix(7): its backlog is full, which has room for six connections in llama.cpp
                    await asyncio.sleep(BACKLOG_PAUSE)
                    self._check()
                else:
                    return (await self._loop.create_unix_connection(UpstreamConnection, sock=connected))[1]
            return await self._connect_tcp(address)
        except OSError as error:
            raise EngineRestarts(self._engine.unreachable) from error

    async def _connect_tcp(self, address: Address) -> UpstreamConnection:
        """Connect over TCP, until the request is stopped. Raises OSError, ServingError."""
        name = address.server_name
        connecting = self._loop.create_task(
            self._loop.create_connection(
                UpstreamConnection, address.host, address.port, ssl=tls_context() if name else None,
                server_hostname=name or None,
            )
        )  # fmt: skip
        self._stops.add_done_callback(lambda _: connecting.cancel())
        try:
            _, connection = await connecting
        except asyncio.CancelledError:
            self._check()
            raise
        return connection

    def _check(self) -> None:
        """Raise the error by which the request was stopped meanwhile."""
        if self._stopped is not None:
            raise self._stopped

    def _stop(self, error: ServingError) -> None:
        """End the request in the engine. A deadline that passes while the caller does not read is the caller's."""
        self._stopped = self._stopped or (ClientLeft() if self._sending else error)
        if not self._stops.done():
            self._stops.set_result(None)
        if self._connection is not None:
            self._connection.close()
