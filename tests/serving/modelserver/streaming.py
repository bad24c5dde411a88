"""A real server with an engine that streams numbers, which a test controls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import ANY, Cancellation, Engine, Signature, TensorSpec
from serving.engines.base.errors import InferenceFailed, InputRefused
from serving.modelserver.base.limits import BodyBudget, ServerLimits
from serving.modelserver.base.stats import Stats
from serving.modelserver.codec.protocol_v2 import V2Codec
from serving.modelserver.connections.listener import AsgiListener
from serving.modelserver.connections.sockets import bind
from serving.modelserver.endpoints.app import DataApp
from serving.modelserver.endpoints.endpoints import make_endpoints
from serving.modelserver.execution.inference import Inference
from serving.modelserver.execution.lifecycle import ModelLifecycle, ServedModel
from serving.modelserver.execution.slot_queue import SlotQueue
from serving.modelserver.execution.workers import Workers
from serving.modelserver.observe.metrics import RequestMetrics
from serving.modelserver.observe.middleware import ObservabilityMiddleware
from tests.serving.modelserver.client import HOST

NAME, REVISION = "m", "m-00007"
FAILS_AFTER = 13
"""Number of parts after which the engine fails."""


class Counting:
    """INT64 n [1] → y [width]: streams 0, 1, … n - 1, each repeated in one part. `ended` counts finished streams."""

    signature = Signature("test", (TensorSpec("n", "INT64", (1,)),), (TensorSpec("y", "INT64", (ANY,)),))
    bounded = True
    is_async = False

    def __init__(self, width: int = 1) -> None:
        self._width = width
        self.made = 0
        self.ended = 0

    def infer(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Sequence[Tensor]:
        """Return the last part."""
        return list(self.stream(inputs, outputs, cancellation))[-1]

    def stream(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Iterator[Sequence[Tensor]]:
        """Yield all parts."""
        last = int(inputs["n"][0])
        if last < 0:
            raise InputRefused("negative")
        try:
            for number in range(last):
                self.made += 1
                yield [np.full(self._width, number)]
            if last == FAILS_AFTER:
                raise InferenceFailed("unlucky")
        finally:
            self.ended += 1

    def close(self) -> None:
        """Do nothing: there are no resources."""


EngineT = TypeVar("EngineT", bound=Engine)


@dataclass
class Streaming(Generic[EngineT]):
    """A running server."""

    port: int
    stats: Stats
    budget: BodyBudget
    engine: EngineT
    metrics: RequestMetrics


@asynccontextmanager
async def counting_server(
    timeout: float = 30, slots: int = 2, queue: int = 4, width: int = 1, limits: ServerLimits | None = None,
) -> AsyncIterator[Streaming[Counting]]:  # fmt: skip
    """Run a server of `Counting` in the context."""
    async with serving(Counting(width), timeout, slots, queue, limits) as running:
        yield running


@asynccontextmanager
async def serving(
    engine: EngineT, timeout: float = 30, slots: int = 2, queue: int = 4, limits: ServerLimits | None = None
) -> AsyncIterator[Streaming[EngineT]]:
    """Run a server of `engine` in the context."""
    loop = asyncio.get_running_loop()
    stats, budget, workers = Stats(time.monotonic), BodyBudget(1 << 20), Workers(slots, loop)
    lifecycle = ModelLifecycle(workers)
    inference = Inference(lifecycle, SlotQueue(slots, queue, stats), workers, timeout, loop)
    app = DataApp(NAME, REVISION, lifecycle, make_endpoints(NAME, inference, budget))
    metrics = RequestMetrics()
    observed = ObservabilityMiddleware(app, metrics, None, time.monotonic)
    listener = AsgiListener(observed, bind(HOST, 0, "PORT"), limits or ServerLimits())
    await listener.start()
    running = Streaming(listener.port, stats, budget, engine, metrics)
    codec = V2Codec(NAME, REVISION, engine.signature, ServerLimits())
    lifecycle.set_model(ServedModel(NAME, REVISION, engine, codec, None))
    try:
        yield running
    finally:
        async with asyncio.timeout(5):
            await listener.close()
        workers.close()
