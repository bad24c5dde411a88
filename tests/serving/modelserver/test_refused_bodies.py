"""A refused body is freed with its response: no error keeps it until the garbage collector runs."""

from __future__ import annotations

import contextlib
import gc
import json
import threading
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import Cancellation
from serving.engines.base.errors import InferenceFailed
from serving.modelserver.base.limits import SMALL_BODY
from tests.serving.modelserver import grpc_parts
from tests.serving.modelserver.client import Answer, Caller, ask, request, tensor
from tests.serving.modelserver.conftest import NAME, Serve
from tests.serving.modelserver.inside import PYTHON
from tests.serving.modelserver.streaming import FAILS_AFTER, Counting, Streaming, counting_server, serving
from tests.support import models
from tests.support.wait import eventually

SIZE = 2 * SMALL_BODY
TIMES = 4
SOON = 0.2  # s; threads begin before
BATCHING = ("--max-batch-size", "8")
INFER, PREDICT = f"/v2/models/{NAME}/infer", f"/v1/models/{NAME}:predict"
GENERATE = f"/v2/models/{NAME}/generate"
STREAM = f"/v2/models/{NAME}/generate_stream"
EVENT = {"ce-specversion": "1.0", "ce-id": "e-1", "ce-source": "/s", "ce-type": "t"}
STRUCTURED = {"content-type": "application/cloudevents+json"}
STREAMED = {"accept": "text/event-stream"}
BROKEN = b"{".ljust(SIZE)
NOT_V1 = json.dumps({"specversion": "1.0", "id": "e", "source": "/s", "type": "t", "data": " " * SIZE}).encode()
FAILING = b"""
class Model:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [-1]}]

    def predict(self, x):
        if x.any():  # no warm-up
            raise RuntimeError("as the test wishes")
        return x
"""


@contextlib.contextmanager
def _no_collector() -> Iterator[Callable[[], int]]:
    """Return how many blocks as large as a body were allocated meanwhile and are not free yet."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        yield lambda: sum(trace.size >= SIZE for trace in tracemalloc.take_snapshot().traces)
    finally:
        tracemalloc.stop()
        gc.enable()


async def _none_is_left(send: Callable[[], Awaitable[None]]) -> None:
    """Check that no body is left after `TIMES` calls of `send`, whose own bytes were made before."""
    await send()  # what is imported and made at the first time
    with _no_collector() as bodies:
        for _ in range(TIMES):
            await send()
        await eventually(lambda: bodies() == 0)


def _posts(
    port: int, path: str, body: bytes, headers: Mapping[str, str], *statuses: int
) -> Callable[[], Awaitable[None]]:
    sent = request("POST", path, body, **headers)

    async def send() -> None:
        answer: Answer = await ask(port, sent)
        assert answer.status in statuses, answer.body

    return send


@pytest.mark.parametrize("options", [(), BATCHING], ids=["alone", "batched"])
@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        (INFER, BROKEN, {}),
        (PREDICT, BROKEN, {}),
        (GENERATE, BROKEN, {}),
        (STREAM, BROKEN, {}),
        ("/invocations", BROKEN, {}),
        (PREDICT, BROKEN, STREAMED),
        (INFER, BROKEN, EVENT),
        (PREDICT, NOT_V1, STRUCTURED),
    ],
    ids=["v2", "v1", "generate", "generate_stream", "invocations", "v1-sse", "event", "structured"],
)
async def test_a_body_that_cannot_be_decoded_is_not_kept(
    serve: Serve, path: str, body: bytes, headers: Mapping[str, str], options: Sequence[str]
) -> None:
    running = await serve(models.double(), *options)
    await _none_is_left(_posts(running.port, path, body, headers, 400))


@pytest.mark.parametrize("options", [(), BATCHING], ids=["alone", "batched"])
async def test_a_body_on_which_the_model_fails_is_not_kept(serve: Serve, options: Sequence[str]) -> None:
    running = await serve(FAILING, *PYTHON, *options)
    body = json.dumps({"inputs": [tensor([1.0])]}).encode().ljust(SIZE)
    await _none_is_left(_posts(running.port, INFER, body, {}, 500))


@pytest.fixture
async def counting() -> AsyncIterator[Streaming[Counting]]:
    async with counting_server(slots=1) as made:
        yield made


async def test_the_body_of_a_stream_that_breaks_is_not_kept(counting: Streaming[Counting]) -> None:
    body = json.dumps({"n": FAILS_AFTER}).encode().ljust(SIZE)
    sent = request("POST", STREAM, body, connection="close")

    async def send() -> None:
        caller = await Caller.connect(counting.port)
        await caller.send(sent)
        assert b'"error"' in await caller.ended()
        caller.close()

    await _none_is_left(send)


async def test_the_body_of_a_stream_whose_caller_leaves_is_not_kept(counting: Streaming[Counting]) -> None:
    sent = request("POST", STREAM, json.dumps({"n": 1 << 40}).encode().ljust(SIZE))

    async def send() -> None:
        made, caller = counting.engine.made, await Caller.connect(counting.port)
        await caller.send(sent)
        await eventually(lambda: counting.engine.made > made)
        caller.reset()
        await eventually(lambda: counting.stats.active == 0)

    await _none_is_left(send)


class Slow(Counting):
    """Waits until it is `open`, and fails."""

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()

    def infer(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Sequence[Tensor]:
        """Fail, at last."""
        self.open.wait(10)
        raise InferenceFailed("too late")


async def test_a_body_that_is_given_up_is_not_kept_when_its_thread_has_ended() -> None:
    engine = Slow()
    async with serving(engine, timeout=SOON, slots=1) as server:
        expired = _posts(
            server.port, INFER, _counted(1).ljust(SIZE), {}, 503, 504
        )  # of a thread that had not begun, the slot is free
        late = _posts(server.port, INFER, _counted(1).ljust(SIZE), {}, 504)

        async def send() -> None:
            engine.open.clear()
            await late()
            await expired()
            engine.open.set()
            await eventually(lambda: (server.stats.active, server.budget.lent) == (0, 0))

        await _none_is_left(send)


def _counted(number: int) -> bytes:
    return json.dumps({"inputs": [tensor([number], "INT64", name="n")]}).encode()


@pytest.mark.parametrize("status", ["INVALID_ARGUMENT", "NOT_FOUND"])
async def test_a_message_that_is_refused_is_not_kept(status: str) -> None:
    more: dict[str, Any] = {"model_name": "other"} if status == "NOT_FOUND" else {}
    sent = grpc_parts.asked(grpc_parts.floats(1.0, name="z"), id="x" * SIZE, **more).SerializeToString()
    async with grpc_parts.serving(models.double()) as server, grpc_parts.channel_to(server) as channel:

        async def send() -> None:
            error = await grpc_parts.refused(grpc_parts.begin(channel, "ModelInfer", sent))
            assert error.code().name == status, error.details()

        await _none_is_left(send)
