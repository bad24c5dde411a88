"""A proxy between a gRPC client and a server, through which the client can stop reading."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc.aio

from tests.serving.modelserver.grpc_parts import HOST

PIECE = 64 * 1024


class Wire:
    """A proxied connection. With `deaf`, its client no longer reads."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._hearing = asyncio.Event()
        self._hearing.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    def turn_deaf(self) -> None:
        """Stop reading from the server."""
        self._hearing.clear()

    async def joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle a new connection."""
        upstream, downstream = await asyncio.open_connection(HOST, self._port, limit=PIECE)
        self._writers += [downstream, writer]
        self._tasks.add(asyncio.ensure_future(self._pass_on(reader, downstream, None)))
        self._tasks.add(asyncio.ensure_future(self._pass_on(upstream, writer, self._hearing)))

    async def _pass_on(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, when: asyncio.Event | None
    ) -> None:
        while data := await source.read(PIECE):
            if when is not None:
                await when.wait()
            target.write(data)
        target.close()

    def close(self) -> None:
        """Close the connection."""
        for task in self._tasks:
            task.cancel()
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def wired(port: int) -> AsyncIterator[tuple[Wire, grpc.aio.Channel]]:
    """Run a proxy whose client can stop reading."""
    wire = Wire(port)
    server = await asyncio.start_server(wire.joined, HOST, 0)
    options = [("grpc.max_receive_message_length", -1)]
    try:
        async with grpc.aio.insecure_channel(f"{HOST}:{server.sockets[0].getsockname()[1]}", options) as channel:
            yield wire, channel
    finally:
        wire.close()
        server.close()
