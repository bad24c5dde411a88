"""Test support: pool members in the event loop of the test, and a store that delivers a model on command."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from clusters.base.errors import KnodelError
from serving.modelserver.connections.sockets import Sockets
from serving.modelserver.server import ModelServer
from tests.serving.modelserver.client import HOST, Answer, Caller, ask, request, tensor
from tests.serving.modelserver.conftest import Running

TOKEN = "a token"
TOKEN_SHA256 = hashlib.sha256(TOKEN.encode()).hexdigest()
REVISION = "m-00007"


class Member(Running):
    """A running pool member."""

    def __init__(self, server: ModelServer, sockets: Sockets) -> None:
        super().__init__(server, sockets)
        self.loading = asyncio.create_task(server.load())
        self._callers: list[Caller] = []

    async def connect(self) -> Caller:
        """Open a connection to the data port, closed at the end."""
        self._callers.append(await super().connect())
        return self._callers[-1]

    async def load(self, uri: str, name: str = "m", token: str = TOKEN, **parameters: Any) -> Answer:
        """Send the load call."""
        return await load(self.management_port, uri, name, token, **parameters)

    async def send_load(self, body: bytes, **headers: str) -> Answer:
        """Send the load call with these bytes."""
        return await ask(self.management_port, request("POST", load_path("m"), body, **headers))

    async def end(self) -> None:
        """Stop the member, whatever the state of its load."""
        for caller in self._callers:
            caller.reset()
        self.loading.cancel()
        with suppress(asyncio.CancelledError, KnodelError):
            await self.loading


class Store:
    """An HTTP server that delivers its only file when it is `open`."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.open = asyncio.Event()
        self.uri = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            await self.open.wait()
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(self.content)}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode() + self.content)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def store_of(content: bytes) -> AsyncIterator[Store]:
    """Run a store; at the end, waiting requests get no response."""
    store = Store(content)
    server = await asyncio.start_server(store.answer, HOST, 0)
    store.uri = f"http://{HOST}:{server.sockets[0].getsockname()[1]}/model.onnx"
    try:
        yield store
    finally:
        store.open.set()
        server.close()


async def load(port: int, uri: str, name: str = "m", token: str = TOKEN, **parameters: Any) -> Answer:
    """Send the load call to a management port."""
    body = json.dumps({"parameters": {"storageUri": uri, "revision": REVISION, **parameters}}).encode()
    return await ask(port, request("POST", load_path(name), body, authorization=f"Bearer {token}"))


def load_path(name: str) -> str:
    """Return the path of the load call."""
    return f"/v2/repository/models/{name}/load"


def infer_of(name: str, *values: float) -> bytes:
    """Return an inference request."""
    body = json.dumps({"inputs": [tensor(list(values))]}).encode()
    return request("POST", f"/v2/models/{name}/infer", body)
