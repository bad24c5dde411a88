"""Small HTTP servers behind the gateway, and a raw client in front of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from clusters.gateway.routes import Backend as Address

BODY_LIMIT = 2**30  # bytes; the gateway's limit is the one under test


@dataclass
class Backend:
    """A server that answers with its name; `hold` cleared lets requests wait."""

    name: str
    address: Address
    requests: list[web.Request] = field(default_factory=list)
    answered: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.Response:
        """Record the request and say who answered."""
        self.requests.append(request)
        self.arrived.set()
        await self.hold.wait()
        try:
            body = await request.read()
        except ConnectionResetError:  # the gateway broke a request off
            return web.Response(status=400)
        self.answered += 1
        return web.json_response({"backend": self.name, "bytes": len(body)}, headers=self.headers)


@contextlib.asynccontextmanager
async def backend(name: str, headers: Mapping[str, str] | None = None) -> AsyncIterator[Backend]:
    """A running backend on a free port of 127.0.0.1."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        made = Backend(name, Address("127.0.0.1", listening.getsockname()[1]), headers=headers or {})
        made.hold.set()
        app = web.Application(client_max_size=BODY_LIMIT)
        app.router.add_route("*", "/{tail:.*}", made.answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.SockSite(runner, listening).start()
        try:
            yield made
        finally:
            await runner.cleanup()


@dataclass(frozen=True)
class Answer:
    """One HTTP answer; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


async def raw(port: int, request: bytes, *, timeout: float = 10.0) -> Answer:
    """Send these very bytes, read one answer with a Content-Length, close."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(timeout):
            writer.write(request)
            return await read_answer(reader)
    finally:
        writer.close()


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """Read one answer with a Content-Length."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.split(": ", 1) for line in head[1:] if line)
    headers = {name.lower(): value for name, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Answer(int(head[0].split(" ")[1]), headers, body)


async def ask(
    port: int,
    path: str = "/v2",
    host: str = "m.default.localhost",
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> Answer:
    """One request over a connection of its own."""
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {host}",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
    ]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return await raw(port, "\r\n".join([*lines, "", ""]).encode("latin-1") + body)
