"""Test support: a gRPC port with all parts behind it, in the event loop of the test, and a client for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import grpc
import grpc.aio
import numpy as np

from serving.modelserver.base.assignment import Assignment, ModelBounds
from serving.modelserver.base.errors import ServingError
from serving.modelserver.base.limits import BodyBudget, ServerLimits
from serving.modelserver.base.stats import StartupTimes, Stats
from serving.modelserver.endpoints.app import health_routes, make_app
from serving.modelserver.endpoints.pending_requests import PendingRequests
from serving.modelserver.execution.inference import Inference
from serving.modelserver.execution.lifecycle import ModelLifecycle
from serving.modelserver.execution.loading import load_model
from serving.modelserver.execution.slot_queue import SlotQueue
from serving.modelserver.execution.workers import Workers
from serving.modelserver.grpc import messages
from serving.modelserver.grpc.server import GrpcServer
from serving.modelserver.observe.metrics import RequestMetrics
from serving.storage.base.artifact import Artifact

HOST = "127.0.0.1"
NAME = "m"
REVISION = "m-00007"
SERVICE = "inference.GRPCInferenceService"
PATIENCE = 10.0  # s; a broken server must fail a test, not hang it


class Parts:
    """The parts of a server that the gRPC port needs, with one model or none yet."""

    def __init__(
        self, slots: int, queue: int, timeout: float, limits: ServerLimits, holds: bool, token: bytes = b""
    ) -> None:
        loop = asyncio.get_running_loop()
        self.bounds = ModelBounds(slots, timeout, 1)
        self.limits = limits
        self.stats = Stats(monotonic)
        self.metrics = RequestMetrics()
        self.budget = BodyBudget(limits.body_memory)
        self.workers = Workers(slots, loop)
        self.lifecycle = ModelLifecycle(self.workers, queues_before_load=holds)
        health = make_app(health_routes(self.lifecycle))
        self.pending = PendingRequests(health, self.stats, self.budget, slots + queue, timeout)
        self.inference = Inference(self.lifecycle, SlotQueue(slots, queue, self.stats), self.workers, timeout, loop)
        self.server = GrpcServer(self.lifecycle, self.pending, self.budget, limits, self.metrics, token=token)
        self.port = 0
        if not holds:
            self.assign()

    def assign(self) -> None:
        """Set the model that is served."""
        self.server.set_revision(REVISION)
        self.server.serve_model(NAME, REVISION, self.inference)

    def load(self, model: bytes) -> None:
        """Serve this ONNX model."""
        assignment = Assignment(NAME, REVISION, "", "", "onnx", self.bounds)
        artifact = Artifact(Path("model.onnx"), model)
        self.lifecycle.set_model(load_model(assignment, lambda: artifact, self.limits, StartupTimes()))

    def busy(self) -> tuple[int, int]:
        """Return the numbers of active and queued requests."""
        return self.stats.active, self.stats.queued

    def codes(self) -> dict[tuple[str, str], float]:
        """Return the numbers of counted responses by protocol and code."""
        counted: Any = self.metrics.families(REVISION)[0]
        return {(labels["protocol"], labels["code"]): count for labels, count in counted.samples}


@asynccontextmanager
async def serving(
    model: bytes | None,
    slots: int = 4,
    queue: int = 1000,
    timeout: float = 300.0,
    limits: ServerLimits | None = None,
    holds: bool = False,
    token: bytes = b"",
) -> AsyncIterator[Parts]:
    """Run a server of an ONNX model (None: it loads for ever)."""
    parts = Parts(slots, queue, timeout, limits or ServerLimits(), holds, token)
    if model is not None:
        parts.load(model)
    parts.port = await parts.server.start(HOST, 0)
    try:
        yield parts
    finally:
        parts.pending.reject(ServingError("the test is over"))
        async with asyncio.timeout(PATIENCE):
            await parts.server.close()
        parts.workers.close()


@asynccontextmanager
async def channel_to(parts: Parts) -> AsyncIterator[grpc.aio.Channel]:
    """Open a channel."""
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(f"{HOST}:{parts.port}", options) as channel:
        yield channel


def begin(
    channel: grpc.aio.Channel, method: str, message: Any, timeout: float = PATIENCE, service: str = SERVICE
) -> Any:
    """Start a call; `message` may be invalid bytes."""
    content = message if isinstance(message, bytes) else message.SerializeToString()
    return channel.unary_unary(f"/{service}/{method}")(content, timeout=timeout)


async def infer(channel: grpc.aio.Channel, *inputs: dict[str, Any], timeout: float = PATIENCE, **more: Any) -> Any:
    """Return the response of an inference."""
    return messages.ModelInferResponse.FromString(await begin(channel, "ModelInfer", asked(*inputs, **more), timeout))


def asked(*inputs: dict[str, Any], model_name: str = NAME, **more: Any) -> Any:
    """Return a ModelInferRequest."""
    return messages.ModelInferRequest(model_name=model_name, inputs=inputs, **more)


def floats(*values: float, name: str = "x") -> dict[str, Any]:
    """Return one FP32 input."""
    return {"name": name, "datatype": "FP32", "shape": [len(values)], "contents": {"fp32_contents": values}}


def raw_floats(answer: Any, index: int = 0) -> list[float]:
    """Return the values of a raw FP32 output."""
    return [float(value) for value in np.frombuffer(answer.raw_output_contents[index], "<f4")]


async def refused(call: Any) -> grpc.aio.AioRpcError:
    """Return the error of a failed call."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError("the call was answered")
