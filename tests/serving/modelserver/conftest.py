"""Fixtures that start real servers on free ports, in the event loop of the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.base.options import parse_options
from serving.modelserver.connections.sockets import Sockets, bind
from serving.modelserver.server import ModelServer
from tests.serving.modelserver.client import HOST, Answer, Caller, ask, request, tensor
from tests.support import models
from tests.support.wait import eventually

NAME = "m"
REVISION = "m-00007"


class Running:
    """A running server, and a client for it."""

    def __init__(self, server: ModelServer, sockets: Sockets) -> None:
        self.server = server
        self.port = int(sockets.data.getsockname()[1])
        self.management_port = int(sockets.management.getsockname()[1])

    async def get(self, path: str, **headers: str) -> Answer:
        """Send a GET to the data port."""
        return await ask(self.port, request("GET", path, b"", **headers))

    async def stats(self) -> Any:
        """Return the page `/stats`."""
        return (await ask(self.management_port, request("GET", "/stats"))).json

    async def post(self, body: Any, path: str = f"/v2/models/{NAME}/infer", **headers: str) -> Answer:
        """Send a POST with JSON or bytes."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await ask(self.port, request("POST", path, content, **headers))

    async def infer(self, *inputs: dict[str, Any], **more: Any) -> Answer:
        """Send an inference request in JSON."""
        return await self.post({"inputs": list(inputs), **more})

    async def ask_and_leave(self) -> None:
        """Send an inference request, and disconnect once it is inside of the model."""
        caller = await self.connect()
        await caller.send(request("POST", f"/v2/models/{NAME}/infer", json.dumps({"inputs": [tensor([1.0])]}).encode()))

        async def inside() -> bool:
            return bool((await self.stats())["active"])

        await eventually(inside)
        caller.reset()

    async def connect(self) -> Caller:
        """Return a connection to the data port."""
        return await Caller.connect(self.port)


Serve = Callable[..., Awaitable[Running]]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Start a server of an ONNX model given as bytes (None: it loads for ever); more options as on its command line.

    `environ` has more variables.
    """
    running: list[ModelServer] = []

    async def start(model: bytes | None, *options: str, limits: ServerLimits | None = None, **environ: str) -> Running:
        path = tmp_path / "model.onnx"
        path.write_bytes(model or b"")
        given = parse_options(
            ["--name", NAME, "--storage-uri", path.as_uri(), *options],
            {"K_REVISION": REVISION, "HOST": HOST, **environ},
        )
        sockets = Sockets(bind(HOST, 0, "PORT"), bind(HOST, 0, "MANAGEMENT_PORT"))
        server = ModelServer(given, sockets, limits or ServerLimits())
        running.append(server)
        await server.start()
        if model is not None:
            await server.load()
        return Running(server, sockets)

    yield start
    for server in running:
        async with asyncio.timeout(5):
            await server.close()


@pytest.fixture
async def double(serve: Serve) -> Running:
    """Return a server of the model FP32 x [n] → y = 2x."""
    return await serve(models.double())
