"""The floor of a server in front of an engine: a proxy on uvloop that copies bytes, without HTTP.

python -m loadtests.bench.byte_proxy PORT SOCKET
"""

from __future__ import annotations

import asyncio
import sys

import uvloop


class _Engine(asyncio.Protocol):
    """The connection to the engine, for one client."""

    def __init__(self, client: asyncio.Transport) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        self._client.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.close()


async def _serve(port: int, path: str) -> None:
    loop = asyncio.get_running_loop()

    class Client(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made = loop.create_unix_connection(lambda: _Engine(transport), path)  # type: ignore[arg-type]
            self._engine = loop.create_task(made)

        def data_received(self, data: bytes) -> None:
            self._engine.add_done_callback(lambda connected: connected.result()[0].write(data))

        def connection_lost(self, exc: Exception | None) -> None:
            self._engine.add_done_callback(lambda connected: connected.result()[0].abort())

    server = await loop.create_server(Client, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1]), sys.argv[2]))
