"""Servers of many models, in the event loop of the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.base.options import LOAD_TOKEN, parse_options
from serving.modelserver.connections.sockets import Sockets, bind
from serving.modelserver.server import ModelServer
from tests.serving.modelserver.client import HOST, Answer, ask, request, tensor
from tests.serving.modelserver.conftest import Running
from tests.serving.modelserver.pool import TOKEN, TOKEN_SHA256
from tests.support import models

SIZE = 1 << 20
"""Bytes of the data of a `weighty` model."""


def weighty(factor: float, size: int = SIZE) -> bytes:
    """Return a model FP32 x [-1] → y = x · factor with `size` bytes of data in memory, of which it reads one."""
    return models.model(
        [
            models.node("Mul", ["x", "zero"], ["nothing"]),
            models.node("Cast", ["nothing"], ["index"], models.whole("to", models.INT64)),
            models.node("Gather", ["data", "index"], ["found"]),
            models.node("Mul", ["x", "factor"], ["multiplied"]),
            models.node("Add", ["multiplied", "found"], ["y"]),
        ],
        [models.value("x", models.FLOAT, ["n"])],
        [models.value("y", models.FLOAT, ["n"])],
        [
            models.floats("zero", [0]),
            models.floats("factor", [factor]),
            models.tensor("data", models.FLOAT, (size // 4,), bytes(size)),
        ],
    )


class Many(Running):
    """A running server of many models."""

    def __init__(self, server: ModelServer, sockets: Sockets, grpc_port: int) -> None:
        super().__init__(server, sockets)
        self.grpc_port = grpc_port

    async def ask_for(self, name: str, *values: float, **headers: str) -> Answer:
        """Send an inference request for this model."""
        return await self.post({"inputs": [tensor(list(values))]}, f"/v2/models/{name}/infer", **headers)

    async def manage(self, path: str, body: Any = None, method: str = "POST", token: str | None = TOKEN) -> Answer:
        """Send a repository call."""
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        content = b"" if body is None else json.dumps(body).encode()
        return await ask(self.management_port, request(method, f"/v2/repository{path}", content, **headers))

    async def states(self, **body: Any) -> Mapping[str, tuple[str, str]]:
        """Return the version and state of each model in the index."""
        index = (await self.manage("/index", body)).json
        return {entry["name"]: (entry["version"], entry["state"]) for entry in index}

    async def reason(self, name: str) -> str:
        """Return the reason of the state of this model."""
        index = (await self.manage("/index")).json
        return next(str(entry["reason"]) for entry in index if entry["name"] == name)


ServeMany = Callable[..., Awaitable[Many]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two models: y = 2x and y = 3x."""
    made = tmp_path / "models"
    models.write(made, "double")
    models.write(made, "triple")
    return made


@pytest.fixture
async def serve_many(folder: Path) -> AsyncIterator[ServeMany]:
    """Serve the models of `folder` with further options."""
    running: list[ModelServer] = []

    async def start(*options: str, load: bool = True, grpc_port: int = 0, **environ: str) -> Many:
        environment = {"HOST": HOST, LOAD_TOKEN: TOKEN_SHA256, "GRPC_PORT": str(grpc_port or ""), **environ}
        sockets = Sockets(bind(HOST, 0, "PORT"), bind(HOST, 0, "MANAGEMENT_PORT"))
        server = ModelServer(parse_options(["--models", str(folder), *options], environment), sockets, ServerLimits())
        running.append(server)
        await server.start()
        if load:
            await server.load()
        return Many(server, sockets, grpc_port)

    yield start
    for server in running:
        async with asyncio.timeout(5):
            await server.close()


@pytest.fixture
def measured_by_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure models by the size of their files: the growth of the process depends on its free memory."""
    monkeypatch.setattr("serving.modelserver.models.loader.resident_bytes", lambda: 0)
