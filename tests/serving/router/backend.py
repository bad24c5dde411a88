"""A server behind the router that streams, waits or breaks off, on a free port of loopback."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
DONE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@dataclass
class Received:
    """A request: its first line, and the pairs of its headers with names in lower case."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]


Behaviour = Callable[["StubBackend", asyncio.StreamWriter], Awaitable[None]]


@dataclass
class StubBackend:
    """It answers each complete request by `behave`. `left` is set when a caller closed its connection."""

    behave: Behaviour
    port: int = 0
    requests: list[Received] = field(default_factory=list)
    connections: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        answering: asyncio.Task[None] | None = None
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").split("\r\n")
                headers = [(name.lower(), value) for name, _, value in (line.partition(": ") for line in lines[1:-2])]
                length = int(dict(headers).get("content-length", "0"))
                self.requests.append(Received(lines[0], headers, await reader.readexactly(length)))
                self.arrived.set()
                answering = asyncio.ensure_future(self.behave(self, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            self.left.set()
        finally:
            if answering is not None:
                answering.cancel()
            writer.close()


async def done(backend: StubBackend, writer: asyncio.StreamWriter) -> None:
    """Answer at once."""
    writer.write(DONE)


async def stream(backend: StubBackend, writer: asyncio.StreamWriter) -> None:
    """Send one event, and the rest when told to go on."""
    writer.write(HEAD + chunk(b"data: 1\n\n"))
    await backend.go_on.wait()
    writer.write(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")


async def break_off(backend: StubBackend, writer: asyncio.StreamWriter) -> None:
    """Send one event, and close the connection when told to go on."""
    writer.write(HEAD + chunk(b"data: 1\n\n"))
    await backend.go_on.wait()
    writer.close()


async def hang_up(backend: StubBackend, writer: asyncio.StreamWriter) -> None:
    """Close the connection before the response."""
    writer.close()


async def hang(backend: StubBackend, writer: asyncio.StreamWriter) -> None:
    """Never respond."""
    await asyncio.Event().wait()


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


@contextlib.asynccontextmanager
async def stub_backend(behave: Behaviour = done) -> AsyncIterator[StubBackend]:
    """A running backend."""
    made = StubBackend(behave)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
