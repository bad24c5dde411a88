"""A server after a hundred thousand requests: its memory, files and threads are what they were after the first ten."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc.aio
import numpy as np

from loadtests.bench.processes import usage_of
from tests.long.served import HOST, Served, served
from tests.serving.modelserver.client import Caller, ask, request, tensor
from tests.serving.modelserver.grpc_parts import SERVICE, asked, floats
from tests.support import models
from tests.support.wait import eventually

MODEL = "double"
CALLERS = 16  # connections at once
WARM_UP = 10_000  # requests, after which pools, caches and the allocator have what they keep
LEAK = (
    40  # bytes a request: no less is left when an object in a list or dict is (16 of the object, 8 to 100 of its place)
)
FEW = 4  # files and threads more or less: connections that are just closed, workers that rest

INFER = json.dumps({"inputs": [tensor([1.0, 2.0])]}).encode()
BYTES_HEAD = json.dumps(
    {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}],
     "parameters": {"binary_data_output": True}}
).encode()  # fmt: skip
EVENT = {"ce-id": "1", "ce-source": "/a", "ce-type": "t", "ce-specversion": "1.0"}
REQUESTS = [
    (request("POST", f"/v2/models/{MODEL}/infer", INFER), 200),
    (request("POST", f"/v2/models/{MODEL}/infer", BYTES_HEAD + struct.pack("<2f", 1, 2),
             inference_header_content_length=str(len(BYTES_HEAD))), 200),
    (request("POST", f"/v1/models/{MODEL}:predict", b'{"instances": [1, 2]}'), 200),
    (request("POST", f"/v2/models/{MODEL}/generate", b'{"x": 1.5}'), 200),
    (request("POST", f"/v1/models/{MODEL}:predict", b'{"instances": [1, 2]}', **EVENT), 200),
    (request("GET", f"/v2/models/{MODEL}"), 200),
    (request("POST", f"/v2/models/{MODEL}/infer", b'{"inputs": ["wrong"]}'), 400),
    (request("POST", "/v2/models/other/infer", INFER), 404),
]  # fmt: skip


async def watched(pid: int, requests: int, step: int, send: Callable[[int], Awaitable[None]]) -> None:
    """Send `requests`, `step` at once; raise AssertionError if what the server holds grows with them."""
    await send(WARM_UP)
    first, counts, memory = usage_of(pid), [0], []
    memory.append(first.memory)
    for done in range(step, requests + 1, step):
        await send(step)
        counts.append(done)
        memory.append(usage_of(pid).memory)
    slope = float(np.polyfit(counts, memory, 1)[0])
    print(f"{requests} requests: {slope:.1f} bytes each, {memory[0] >> 20} to {memory[-1] >> 20} MiB")
    assert slope < LEAK, memory

    def given_back() -> bool:
        last = usage_of(pid)
        assert last.files - first.files <= FEW and last.tasks - first.tasks <= FEW, (first, last)
        return True

    await eventually(given_back, 10.0)  # a busy machine closes the connections of the last requests later


async def over_http(server: Served, count: int) -> None:
    """Requests of all kinds over connections that are kept."""

    async def call(number: int) -> None:
        caller = await Caller.connect(server.port)
        for turn in range(count // CALLERS):
            content, status = REQUESTS[(number + turn) % len(REQUESTS)]
            await caller.send(content)
            assert (await caller.answer()).status == status
        caller.close()

    await asyncio.gather(*map(call, range(CALLERS)))


async def over_new_connections(server: Served, count: int) -> None:
    """Each request over a connection of its own; every other one is left without a word."""
    content, status = REQUESTS[0]
    for _ in range(count // 2):
        assert (await ask(server.port, content)).status == status
        left = await Caller.connect(server.port)
        await left.send(content[: len(content) // 2])
        left.reset()


async def over_grpc(server: Served, count: int) -> None:
    """Inferences over a few channels, one in ten of them refused."""
    good, bad = (asked(floats(1.0, name=name), model_name=MODEL).SerializeToString() for name in ("x", "z"))

    async def call(_: int) -> None:
        async with grpc.aio.insecure_channel(f"{HOST}:{server.grpc_port}") as channel:
            infer = channel.unary_unary(f"/{SERVICE}/ModelInfer")
            for turn in range(count // CALLERS):
                if turn % 10:
                    assert await infer(good)
                else:
                    await _refused(infer(bad))

    await asyncio.gather(*map(call, range(CALLERS)))


async def _refused(call: Awaitable[bytes]) -> None:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    else:
        raise AssertionError("a wrong request was answered")


async def test_memory_files_and_threads_stay_over_a_hundred_thousand_requests(tmp_path: Path) -> None:
    with served(tmp_path / "log", str(models.write(tmp_path, MODEL))) as server:
        await watched(server.pid, 100_000, 10_000, lambda count: over_http(server, count))
        await watched(server.pid, 20_000, 4_000, lambda count: over_grpc(server, count))
        await watched(server.pid, 4_000, 1_000, lambda count: over_new_connections(server, min(count, 1_000)))
