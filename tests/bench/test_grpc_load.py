"""Test the gRPC load generator against real gRPC servers."""

from __future__ import annotations

import asyncio
import shutil
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from tritonclient.grpc import service_pb2

from loadtests.bench.servers.grpc_load import broken, numbers_of, parse, press
from loadtests.bench.servers.load import GRPC_METHOD, Tensor, as_grpc

FLOWER = Tensor("x", (1, 2), [1.0, 2.0], struct.pack("<2f", 1, 2))
Serve = Callable[[bytes], Awaitable[str]]


def response(raw: bytes = b"", **contents: Any) -> bytes:
    message = service_pb2.ModelInferResponse(raw_output_contents=[raw] if raw else [])
    message.outputs.add(name="y", datatype="FP32", contents=contents or None)
    return bytes(message.SerializeToString())


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Start a server that gives each caller the same answer."""
    servers = []

    async def start(answer: bytes) -> str:
        async def infer(request: bytes, context: Any) -> bytes:
            if not answer:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "no")
            return answer

        _, service, method = GRPC_METHOD.split("/")
        server = grpc.aio.server()
        handlers = {method: grpc.unary_unary_rpc_method_handler(infer)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        servers.append(server)
        return f"127.0.0.1:{port}"

    yield start
    for server in servers:
        await server.stop(None)


def test_numbers_are_read_from_raw_and_from_typed_contents() -> None:
    assert list(numbers_of(response(struct.pack("<2f", 0.5, 2)))) == [0.5, 2]
    assert list(numbers_of(response(fp32_contents=[0.5, 2]))) == [0.5, 2]
    assert list(numbers_of(response(int64_contents=[7]))) == [7]


def test_a_request_carries_the_tensor_raw() -> None:
    sent = service_pb2.ModelInferRequest.FromString(as_grpc("call", FLOWER, [1]).body)

    assert (sent.inputs[0].name, sent.inputs[0].datatype, list(sent.inputs[0].shape)) == ("x", "FP32", [1, 2])
    assert list(sent.raw_input_contents) == [FLOWER.raw]


def test_what_h2load_logged_becomes_figures() -> None:
    found = parse("1000\t200\t300\n1100\t200\t500\n2000\t503\t1000\n")

    took = {"p50": 500, "p95": 1000, "p99": 1000}
    assert found == {"requests": 3, "microseconds": 2000.0, **took, "refused": 1, "broken": 0}
    assert parse("")["requests"] == 0


def test_answers_that_are_too_short_are_counted() -> None:
    output = (
        "requests: 10 total, 10 started, 10 done, 10 succeeded, 0 failed\n"
        "traffic: 1KB (900) total, 90B (90) headers (space savings 50.00%), 630B (630) data"
    )

    assert broken(output, 63) == 0
    assert broken(output, 90) == 3


@pytest.mark.skipif(shutil.which("h2load") is None, reason="h2load is not installed")
async def test_every_connection_asks_until_the_time_is_over(serve: Serve) -> None:
    target = await serve(response(struct.pack("<f", 3)))

    found = await asyncio.to_thread(press, target, as_grpc("call", FLOWER, [3]), connections=4, seconds=1)

    assert found["requests"] >= 4
    assert (found["refused"], found["broken"]) == (0, 0)
    assert 0 < found["p50"] <= found["p99"]


async def test_a_wrong_answer_ends_the_measurement(serve: Serve) -> None:
    target = await serve(response(struct.pack("<f", 4)))

    with pytest.raises(SystemExit, match="call: output"):
        await asyncio.to_thread(press, target, as_grpc("call", FLOWER, [3]), connections=1, seconds=1)


async def test_a_failed_call_ends_the_measurement(serve: Serve) -> None:
    target = await serve(b"")

    with pytest.raises(grpc.RpcError):
        await asyncio.to_thread(press, target, as_grpc("call", FLOWER, [3]), connections=1, seconds=1)
