"""The transport of `knodel.AsyncClient`, on httpx2 and asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpcore2
import httpx2

from clusters.net import unix_sockets
from knodel.transport.common import (
    BodyParts,
    LineParts,
    LineStream,
    answer_of,
    arguments_of,
    opened,
    pool_options,
    translated,
)
from knodel.transport.threads import check_owner
from serving.client.effects import OK_BELOW, HttpAnswer, HttpRequest
from serving.client.http import ServerAddress


class AsyncHttpxTransport:
    """Performs the requests of operations; `http_client` sends inference requests if it is given.

    Each event loop gets connections of its own.
    """

    def __init__(self, http_client: Any = None) -> None:
        self._given = http_client
        self._clients: dict[asyncio.AbstractEventLoop, dict[tuple[ServerAddress, bool], httpx2.AsyncClient]] = {}

    async def exchange(self, request: HttpRequest) -> HttpAnswer:
        """Perform `Exchange`."""
        client, library = self._client(request)
        with translated(library, request):
            async with asyncio.timeout(request.timeout):
                response = await client.send(client.build_request(**arguments_of(request)), stream=True)
                try:
                    return answer_of(response, await _body(request, response))
                finally:
                    await response.aclose()

    async def open(self, request: HttpRequest, silence: float | None) -> HttpAnswer:
        """Perform `OpenStream`."""
        client, library = self._client(request)
        arguments = arguments_of(request)
        left = request.timeout
        arguments["timeout"] = library.Timeout(connect=left, write=left, pool=left, read=silence)
        with translated(library, request):
            async with asyncio.timeout(request.timeout):
                response = await client.send(client.build_request(**arguments), stream=True)
                if response.status_code >= OK_BELOW:
                    try:
                        return answer_of(response, await _body(request, response))
                    finally:
                        await response.aclose()
        lines = LineParts(request.endpoint.where)
        return answer_of(response, stream=LineStream(request, response, response.aiter_raw(), lines, library))

    async def read_line(self, stream: LineStream) -> bytes:
        """Perform `ReadLine`."""
        with translated(stream.library, stream.request):
            while not (line := stream.lines.next(ended=False)):
                part = await anext(stream.parts, None)
                if part is None:
                    await stream.response.aclose()
                    return stream.lines.next(ended=True)
                stream.lines.add(part)
            return line

    async def close(self, stream: LineStream) -> None:
        """Close a stream."""
        with suppress(Exception):  # it may be closed
            await stream.parts.aclose()
        with suppress(Exception):
            await stream.response.aclose()

    async def close_all(self) -> None:
        """Close all connections of this event loop; a client that the caller gave stays open."""
        for client in self._clients.pop(asyncio.get_running_loop(), {}).values():
            await client.aclose()

    def _client(self, request: HttpRequest) -> tuple[Any, Any]:
        """Return the HTTP client for a request, and its library."""
        if request.inference and self._given is not None:
            return opened(self._given)
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            for ended in [one for one in list(self._clients) if one.is_closed()]:
                self._clients.pop(ended, None)  # another thread may have removed it
        clients = self._clients.setdefault(loop, {})
        key = request.endpoint, request.inference
        found = clients.get(key)
        if found is None:
            found = httpx2.AsyncClient(transport=_AsyncPoolTransport(request), trust_env=False)
            clients[key] = found
        return found, httpx2


async def _body(request: HttpRequest, response: Any) -> bytes:
    body = BodyParts(request)
    async for part in _raw(response):
        body.add(part)
    return body.content()


async def _raw(response: Any) -> AsyncIterator[bytes]:
    """Yield the parts of a body; a response that a mock transport made is in memory already."""
    if response.is_stream_consumed:
        yield response.content
        return
    async for part in response.aiter_raw():
        yield part


class _AsyncPoolTransport(httpx2.AsyncHTTPTransport):
    """The transport to one server, through its unix socket or proxy."""

    def __init__(self, request: HttpRequest) -> None:
        # Not the initializer of the base class: it makes a pool without a `network_backend`.
        endpoint = request.endpoint
        shared: dict[str, Any] = {"ssl_context": endpoint.tls, **pool_options(request)}
        proxy = endpoint.proxy
        if proxy is not None:
            self._pool = httpcore2.AsyncHTTPProxy(
                proxy_url=f"http://{proxy.host}:{proxy.port}", proxy_headers=list(proxy.headers.items()), **shared
            )
        elif endpoint.socket is not None:
            self._pool = httpcore2.AsyncConnectionPool(
                uds=str(endpoint.socket), network_backend=_AsyncBackend(endpoint), **shared
            )
        else:
            self._pool = httpcore2.AsyncConnectionPool(**shared)


class _AsyncBackend(httpcore2.AsyncNetworkBackend):
    """Connects to a unix socket, only if its owner listens there."""

    def __init__(self, endpoint: ServerAddress) -> None:
        self._endpoint = endpoint
        self._inner = httpcore2.AnyIOBackend()

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to a unix socket. Raises ConnectError when another user listens there: nothing is sent then."""
        try:
            with unix_sockets.short_address(Path(path)) as address:
                stream = await self._inner.connect_unix_socket(address, timeout, socket_options)
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error
        try:
            check_owner(stream.get_extra_info("socket"), self._endpoint)
        except httpcore2.ConnectError:
            await stream.aclose()
            raise
        return stream
