"""A whole server with a gRPC port: HTTP and gRPC share the model and its slots."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import grpc
import grpc.aio
import pytest

from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.base.options import LOAD_TOKEN, parse_options
from serving.modelserver.connections.sockets import Sockets, bind
from serving.modelserver.server import ModelServer
from tests.serving.modelserver import pool
from tests.serving.modelserver.client import HOST, tensor
from tests.serving.modelserver.conftest import NAME, REVISION, Running
from tests.serving.modelserver.grpc_parts import asked, begin, floats, infer, refused
from tests.support import models
from tests.support.ports import free_port
from tests.support.wait import eventually


class Both(Running):
    """A server with HTTP and gRPC ports."""

    def __init__(self, server: ModelServer, sockets: Sockets, grpc_port: int) -> None:
        super().__init__(server, sockets)
        self.grpc_port = grpc_port


Start = Callable[..., Awaitable[Both]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start a server with these options, without a model."""
    running: list[ModelServer] = []

    async def started(*options: str) -> Both:
        port = free_port()
        environ = {"K_REVISION": REVISION, "HOST": HOST, "GRPC_PORT": str(port), LOAD_TOKEN: pool.TOKEN_SHA256}
        sockets = Sockets(bind(HOST, 0, "PORT"), bind(HOST, 0, "MANAGEMENT_PORT"))
        running.append(ModelServer(parse_options(options, environ), sockets, ServerLimits()))
        await running[-1].start()
        return Both(running[-1], sockets, port)

    yield started
    for server in running:
        async with asyncio.timeout(5):
            await server.close()


def channel_to(running: Both) -> grpc.aio.Channel:
    """Return a channel to the gRPC port."""
    return grpc.aio.insecure_channel(f"{HOST}:{running.grpc_port}")


def write(folder: Path, model: bytes) -> str:
    """Write the model to a file and return its URI."""
    path = folder / "model.onnx"
    path.write_bytes(model)
    return path.as_uri()


async def test_both_protocols_share_the_slots_of_a_model(start: Start, tmp_path: Path) -> None:
    uri = write(tmp_path, models.slow())
    running = await start("--name", NAME, "--storage-uri", uri, "--slots", "1", "--queue", "0")
    await running.server.load()
    async with channel_to(running) as channel:
        first = asyncio.ensure_future(infer(channel, floats(1.0)))
        await eventually(lambda: running.server.stats.active == 1)
        assert (await running.infer(tensor([1.0]))).status == 429
        assert (await first).outputs[0].contents.fp32_contents[0] == 2.0
        over_http = asyncio.ensure_future(running.infer(tensor([1.0])))
        await eventually(lambda: running.server.stats.active == 1)
        error = await refused(begin(channel, "ModelInfer", asked(floats(1.0))))
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await over_http).status == 200


async def test_a_pool_member_answers_what_it_held_on_both_protocols(start: Start, tmp_path: Path) -> None:
    running = await start("--pool")
    loading = asyncio.ensure_future(running.server.load())
    async with channel_to(running) as channel:
        over_grpc = asyncio.ensure_future(infer(channel, floats(1.0)))
        over_http = asyncio.ensure_future(running.infer(tensor([1.0])))
        await eventually(lambda: running.server.waiting_requests == 2)
        answer = await pool.load(running.management_port, write(tmp_path, models.double()))
        assert answer.status == 200
        assert (await over_grpc).outputs[0].contents.fp32_contents[0] == 2.0
        assert (await over_http).status == 200
        await loading


async def test_draining_ends_both_ports(start: Start, tmp_path: Path) -> None:
    running = await start("--name", NAME, "--storage-uri", write(tmp_path, models.slow()))
    await running.server.load()
    async with channel_to(running) as channel:
        in_flight = asyncio.ensure_future(infer(channel, floats(1.0)))
        await eventually(lambda: running.server.stats.active == 1)
        await running.server.drain()
        assert (await in_flight).outputs[0].contents.fp32_contents[0] == 2.0
        assert (await refused(begin(channel, "ServerLive", b""))).code() == grpc.StatusCode.UNAVAILABLE
