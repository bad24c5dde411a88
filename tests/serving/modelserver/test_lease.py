"""A request keeps its slot and body memory while a thread works on it, even after the client has left."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import ANY, Cancellation, Signature, TensorSpec
from serving.modelserver.base.assignment import BatchBounds
from serving.modelserver.base.limits import SMALL_BODY, Lease, ServerLimits
from serving.modelserver.base.stats import Stats
from serving.modelserver.codec.protocol_v2 import PreparedRequest, V2Codec
from serving.modelserver.execution import batcher as batchers
from serving.modelserver.execution.batch import rows_of
from serving.modelserver.execution.batcher import Batcher
from serving.modelserver.execution.inference import INLINE_BODY, Inference
from serving.modelserver.execution.lifecycle import ModelLifecycle, ServedModel
from serving.modelserver.execution.slot_queue import SlotQueue
from serving.modelserver.execution.workers import Workers
from tests.serving.modelserver import grpc_parts
from tests.serving.modelserver.client import ask, request
from tests.serving.modelserver.streaming import NAME, REVISION, Counting, serving
from tests.support.clock import SteppedClock
from tests.support.wait import eventually

LARGE = INLINE_BODY + 1  # bytes: of a request that has a thread
PADDED = json.dumps({"inputs": [{"name": "n", "datatype": "INT64", "shape": [1], "data": [1]}]}).encode().ljust(
    SMALL_BODY + 1
)  # fmt: skip
STREAMED = b'{"n": 1}'.ljust(SMALL_BODY + 1)
"""Bodies that take memory from the budget."""
SOON = 0.2  # s; threads come to the gate before


class Gate:
    """A gate at which threads wait until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    def wait(self) -> None:
        """Wait in a thread."""
        self.reached.set()
        self.open.wait(10)


class Answers:
    """x [n] → configured outputs, for which it may wait."""

    bounded = True
    is_async = False
    signature = Signature("test", (TensorSpec("x", "FP64", (ANY,)),), (TensorSpec("y", "BYTES", (ANY,)),))

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.answer: Tensor = np.zeros(1)
        self.waits = False

    def infer(self, *_: Any) -> Sequence[Tensor]:
        """Return the outputs."""
        if self.waits:
            self._gate.wait()
        return [self.answer]


class Text(str):
    """A body that records the threads that read its length."""

    __slots__ = ("askers",)
    askers: set[int]

    def __len__(self) -> int:
        self.askers.add(threading.get_ident())
        return super().__len__()


class Nobody:
    """A client that stays connected."""

    def on_disconnect(self, callback: Callable[[], object] | None) -> None:
        """Ignore the callback: the client never disconnects."""


class Parts:
    """An inference with one slot and batches, and a body from a budget."""

    def __init__(self, gate: Gate, grace: float = 1000.0) -> None:
        loop = asyncio.get_running_loop()
        self.gate = gate
        self.engine = Answers(gate)
        self.stats = Stats(SteppedClock().monotonic)
        self.workers = Workers(2, loop, grace)
        self.given_back = 0
        self.body = Lease(self._give_back)
        lifecycle = ModelLifecycle(self.workers)
        batcher = Batcher(BatchBounds(8, 0.0), self.workers, loop, lambda _: None)
        slots = SlotQueue(1, 10, self.stats)
        self.inference = Inference(lifecycle, slots, self.workers, 10.0, loop, batcher)
        engine: Any = self.engine
        codec: Any = None
        lifecycle.set_model(ServedModel("m", "m-00001", engine, codec, 1.0))

    def _give_back(self) -> None:
        self.given_back += 1

    async def asked(self, wait: Callable[[], object] = bool) -> set[int]:
        """Run a request whose decoding waits, and return the threads that it used. Releases the body."""
        idents: set[int] = set()

        def encode(*_: Any) -> None:
            idents.add(threading.get_ident())

        def decode(_: ServedModel) -> Any:
            wait()
            return PreparedRequest({"x": np.zeros(1)}, ["y"], [False], ""), encode

        try:
            await self.inference.infer(decode, LARGE, Nobody(), body=self.body)
        finally:
            self.body.release()
        return idents

    async def left(self, wait: Callable[[], object] = bool) -> None:
        """Run a request whose client disconnects while a thread waits at the gate."""
        leaves = asyncio.ensure_future(self.asked(wait))
        await eventually(self.gate.reached.is_set)
        leaves.cancel()
        await asyncio.wait([leaves])


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open.set()


@pytest.fixture
async def parts(gate: Gate) -> Any:
    made = Parts(gate)
    yield made
    gate.open.set()
    made.workers.close()


async def test_the_elements_of_a_large_request_are_looked_at_in_its_thread(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    idents: list[int] = []

    def watched(call: PreparedRequest) -> Any:
        idents.append(threading.get_ident())
        return rows_of(call)

    monkeypatch.setattr(batchers, "rows_of", watched)
    await parts.asked()
    assert len(idents) == 1 and threading.get_ident() not in idents


@pytest.mark.parametrize(("count", "length", "looked_at"), [(LARGE, 1, False), (1, LARGE, True), (1, 1, True)])
async def test_the_texts_of_an_answer_are_looked_at_unless_they_are_too_many(
    parts: Parts, count: int, length: int, looked_at: bool
) -> None:
    text, here = Text("x" * length), threading.get_ident()
    text.askers = set()
    parts.engine.answer = np.full(count, None)
    parts.engine.answer[:] = [text] * count

    encoded_in = await parts.asked()

    assert (here in text.askers) == looked_at
    assert (encoded_in == {here}) == (count * length < INLINE_BODY)


async def test_a_slot_is_kept_by_the_thread_that_decodes(parts: Parts) -> None:
    await parts.left(parts.gate.wait)
    assert (parts.stats.active, parts.given_back) == (1, 0)
    parts.gate.open.set()
    await eventually(lambda: (parts.stats.active, parts.given_back) == (0, 1))


async def test_a_thread_that_hangs_keeps_the_body_and_not_the_slot(gate: Gate) -> None:
    parts = Parts(gate, grace=0.0)
    await parts.left(gate.wait)
    await eventually(lambda: parts.stats.active == 0)
    assert parts.given_back == 0
    gate.open.set()
    await eventually(lambda: parts.given_back == 1)
    parts.workers.close()


async def test_a_batch_keeps_the_bodies_of_those_who_have_left_it(parts: Parts) -> None:
    parts.engine.waits = True
    await parts.left()
    assert parts.given_back == 0
    parts.gate.open.set()
    await eventually(lambda: parts.given_back == 1)


class Waiting(Counting):
    """An engine that counts once the gate is open."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate = gate

    def stream(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Iterator[Sequence[Tensor]]:
        """Yield all parts."""
        self._gate.wait()
        return super().stream(inputs, outputs, cancellation)


async def test_memory_is_lent_to_a_message_until_the_model_is_done_with_it_too(gate: Gate) -> None:
    engine = Waiting(gate)
    codec = V2Codec(NAME, REVISION, engine.signature, ServerLimits())
    sent = grpc_parts.asked(
        {"name": "n", "datatype": "INT64", "shape": [1], "contents": {"int64_contents": [1]}}, id="x" * SMALL_BODY
    ).SerializeToString()
    async with grpc_parts.serving(None, timeout=SOON) as server, grpc_parts.channel_to(server) as channel:
        server.lifecycle.set_model(ServedModel(NAME, REVISION, engine, codec, None))
        error = await grpc_parts.refused(grpc_parts.begin(channel, "ModelInfer", sent))
        assert (error.code().name, server.budget.lent) == ("DEADLINE_EXCEEDED", len(sent))
        gate.open.set()
        await eventually(lambda: server.budget.lent == 0)


@pytest.mark.parametrize(("path", "body"), [("infer", PADDED), ("generate_stream", STREAMED)])
async def test_memory_is_lent_to_a_body_until_the_model_is_done_with_it_too(gate: Gate, path: str, body: bytes) -> None:
    async with serving(Waiting(gate), timeout=SOON) as server:
        answer = await ask(server.port, request("POST", f"/v2/models/{NAME}/{path}", body))
        assert (answer.status, server.budget.lent) == (504, len(body))
        gate.open.set()
        await eventually(lambda: server.budget.lent == 0)
