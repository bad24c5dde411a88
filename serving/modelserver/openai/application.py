"""Pass requests on to an application that has paths of its own, such as one of Ray Serve, and its responses back.

Method, path, headers and bodies are passed on byte for byte, responses piece by piece. The server keeps slot, queue,
deadline and metrics around each request as it does for an inference.
"""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import Final

from starlette.types import Receive, Scope, Send

from clusters.net.hop_by_hop import HOP_BY_HOP, connection_options
from clusters.net.server.connection import HttpConnection
from clusters.net.server.protocol import connection_of
from clusters.net.upstream import UpstreamConnection, UpstreamError
from serving.engines.base.trace_context import HEADER as TRACE_HEADER
from serving.engines.base.trace_context import TRACEPARENT
from serving.engines.upstream.client import Address
from serving.engines.upstream.remote import RemoteEngine
from serving.modelserver.base.errors import (
    ClientLeft,
    ContentTooLarge,
    InvalidRequest,
    ModelFailed,
    ServingError,
    release_frames,
)
from serving.modelserver.base.limits import BodyBudget, Lease
from serving.modelserver.base.responses import BROKEN_KEY, send_error
from serving.modelserver.codec.bounded_read import read_content
from serving.modelserver.execution.inference import BEGAN, Inference, RequestContext
from serving.modelserver.openai.exchange import Exchange, Waker

_OWN: Final = HOP_BY_HOP | {b"content-length", b"expect"}
"""Headers of a request that the server determines: it has the whole body."""

_DOTS: Final = re.compile(rb"(?:^|/|%2f|\\|%5c)(?:\.|%2e){1,2}(?:$|/|%2f|\\|%5c)", re.IGNORECASE)
"""A segment of a path by which it might leave the prefix of its application."""


class ApplicationEndpoint:
    """The ASGI endpoint of all paths of an application."""

    def __init__(self, inference: Inference, budget: BodyBudget) -> None:
        self._inference = inference
        self._budget = budget
        self._waker = Waker()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        try:
            await self._serve(scope, receive, send)
        except ServingError as error:
            release_frames(error)
            if not isinstance(error, ClientLeft):
                await send_error(send, error)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        model = self._inference.model()
        engine = model.engine
        if not isinstance(engine, RemoteEngine):
            raise ModelFailed("the model has no application")
        content, lent = await read_content(receive, self._budget)
        lease = Lease(partial(self._budget.give_back, lent), lent)
        try:
            if len(content) > (limit := model.codec.limits.body):
                raise ContentTooLarge(f"the body has {len(content)} bytes, more than {limit}")
            client = connection_of(scope, HttpConnection)
            async with self._inference.occupy(client, scope.get(BEGAN)) as request:
                await _Exchange(engine, request, client, self._waker, scope, send).run(content)
        finally:
            lease.release()


class _Exchange(Exchange):
    def __init__(
        self, engine: RemoteEngine, request: RequestContext, client: HttpConnection, waker: Waker, scope: Scope,
        send: Send,
    ) -> None:  # fmt: skip
        super().__init__(engine, request, client, waker)
        self._scope = scope
        self._send = send

    async def _exchange(self, connection: UpstreamConnection, address: Address, body: bytes) -> None:
        if address.prefix and _DOTS.search(self._scope.get("raw_path") or self._scope["path"].encode()):
            raise InvalidRequest("the path has a segment '.' or '..': send the path that it leads to")
        connection.send(request_head(address, self._scope, len(body)), head_only=self._scope["method"] == "HEAD")
        connection.write(body)
        status, headers = await connection.response()
        dropped = HOP_BY_HOP | connection_options(headers)
        passed = [(name, value) for name, value in headers if name not in dropped]
        await self._send({"type": "http.response.start", "status": status, "headers": passed})
        try:
            while data := await connection.read():
                self._sending = True
                await self._send({"type": "http.response.body", "body": data, "more_body": True})
                self._sending = False
            self._check()
        except (UpstreamError, ServingError) as error:
            failure = self._stopped or ModelFailed(f"the application broke off the response: {error}")
            self._scope[BROKEN_KEY] = failure.status
            self._client.transport.abort()  # a completed response would look like the whole one
            await asyncio.sleep(0)  # for the connection to notice
            return
        await self._send({"type": "http.response.body", "body": b""})


def request_head(address: Address, scope: Scope, length: int) -> bytes:
    """Return the head of the request to the application, with the engine's key; traced, with this server's span."""
    query = scope.get("query_string") or b""
    path = address.prefix.encode() + (scope.get("raw_path") or scope["path"].encode())
    target = path + (b"?" + query if query else b"")
    given = [address.key_header] if address.key else []
    given += [("host", address.authority)] if address.authority else []
    given += [(TRACE_HEADER.decode(), parent)] if (parent := TRACEPARENT.get()) else []
    own = {name.lower().encode(): value.encode() for name, value in given}
    dropped = _OWN | own.keys() | connection_options(scope["headers"])
    headers = [(name, value) for name, value in scope["headers"] if name not in dropped]
    headers += [*own.items(), (b"connection", b"close")]
    if length or scope["method"] not in ("GET", "HEAD", "OPTIONS"):
        headers.append((b"content-length", b"%d" % length))
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    return b"%b %b HTTP/1.1\r\n%b\r\n" % (scope["method"].encode(), target, lines)
