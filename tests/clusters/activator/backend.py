"""A small scripted model server for the activator's tests, which records its requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from clusters.net.endpoints import Endpoint
from tests.clusters.activator.bodies import read_body

Handler = Callable[["Call"], Awaitable[None]]


@dataclass
class Call:
    """A request at the backend."""

    head: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    headers: dict[str, str] = field(default_factory=dict)

    async def body(self) -> bytes:
        """Its whole body, by length or chunks."""
        return await read_body(self.reader, self.headers)

    async def answer(
        self, body: bytes = b"{}", status: str = "200 OK", headers: Mapping[str, str] | None = None
    ) -> None:
        """A whole answer."""
        lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await self.writer.drain()


class Backend:
    """A server on a port of its own. `busy` and `busiest` count active requests.

    `stats` is its `/stats` page, whose requests and connections are not counted.
    """

    def __init__(self, handler: Handler | None = None, name: str = "default/pod") -> None:
        self._handler = handler or Backend.echo
        self.stats: bytes = json.dumps({"startup": {"imports": 1.0, "load": 2.0, "warmup": 3.0}}).encode()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.name = name
        self.calls: list[Call] = []
        self.connections = 0
        self.busy = 0
        self.busiest = 0
        self.port = 0

    @property
    def endpoint(self) -> Endpoint:
        """Where it is."""
        return Endpoint(self.name, "127.0.0.1", self.port, self.port)

    async def __aenter__(self) -> Backend:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, backlog=2048)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop at once: connections are cut, new ones refused."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fresh = True
        self._writers.add(writer)
        try:
            while True:
                call = _read(await reader.readuntil(b"\r\n\r\n"), reader, writer)
                if b"GET /stats" in call.head:
                    await call.answer(self.stats)
                    continue
                self.connections += fresh
                fresh = False
                self.calls.append(call)
                self.busy += 1
                self.busiest = max(self.busiest, self.busy)
                try:
                    await self._handler(call)
                finally:
                    self.busy -= 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the activator closed the connection, or a test did
        finally:
            self._writers.discard(writer)
            writer.close()

    @staticmethod
    async def echo(call: Call) -> None:
        """Answer with the request's body, or its target when it has none."""
        body = await call.body()
        await call.answer(body or call.head.split(b" ")[1])


def _read(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Call:
    headers = {}
    for line in head.decode("latin-1").split("\r\n")[1:]:
        name, separator, value = line.partition(":")
        if separator:
            headers[name.strip().lower()] = value.strip()
    return Call(head, reader, writer, headers)


class Gate:
    """A handler that blocks every request until it is opened."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def __call__(self, call: Call) -> None:
        await self.open.wait()
        await Backend.echo(call)
