"""HTTP servers with scripted behaviour: they answer, hang, respond slowly or endlessly, close the connection, or send
garbage.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

Behaviour = Callable[[asyncio.StreamWriter], Awaitable[None]]
GIGABYTE = 1_000_000_000


def answer(body: bytes, status: str = "200 OK", media_type: str = "text/plain; version=0.0.4") -> Behaviour:
    async def behave(writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {status}\r\ncontent-type: {media_type}\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)

    return behave


def chunked(*parts: bytes) -> Behaviour:
    async def behave(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for part in (*parts, b""):
            writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")

    return behave


async def hang(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def drip(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.01)


async def pour(writer: asyncio.StreamWriter) -> None:
    writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {GIGABYTE}\r\n\r\n".encode())
    with contextlib.suppress(ConnectionError):
        while True:
            writer.write(b" " * 65_536)
            await writer.drain()


async def pour_headers(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    with contextlib.suppress(ConnectionError):
        while True:
            writer.write(b"x-more: " + b"x" * 65_536 + b"\r\n")
            await writer.drain()


async def slam(writer: asyncio.StreamWriter) -> None:
    writer.close()


async def no_http(writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n")


@dataclass
class Server:
    """The address of a server, its behaviour from now on, and the requests that it received."""

    behave: Behaviour
    host: str
    port: int = 0
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0


@contextlib.asynccontextmanager
async def serving(behave: Behaviour, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Server]:
    """Run a server until the end of the block."""
    made = Server(behave, host)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.connections += 1
        task = asyncio.current_task()
        if task is not None:
            tasks.add(task)
        with contextlib.suppress(asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            while True:
                made.requests.append(await reader.readuntil(b"\r\n\r\n"))
                await made.behave(writer)
        writer.close()

    server = await asyncio.start_server(serve, host, port)
    made.port = int(server.sockets[0].getsockname()[1])
    try:
        yield made
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
