"""The model server: composes its ports and its models in one event loop.

`OneModel` and, in a server of many models, `models.many.ManyModels` implement the same protocol `ServerModels`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace
from starlette.types import ASGIApp

from serving.modelserver.base.limits import BodyBudget, ServerLimits
from serving.modelserver.base.logs import own_stderr
from serving.modelserver.base.options import ServerOptions
from serving.modelserver.base.stats import StartupTimes, Stats
from serving.modelserver.connections.listener import AsgiListener
from serving.modelserver.connections.sockets import Sockets
from serving.modelserver.endpoints.confirmation import Confirmation
from serving.modelserver.endpoints.management import make_management_app
from serving.modelserver.endpoints.pending_requests import PendingRequests
from serving.modelserver.endpoints.repository import MAX_BODY_SIZE, BearerToken, ModelRepository, RepositoryRoutes
from serving.modelserver.execution.workers import HungThreads
from serving.modelserver.model_host import ServerContext
from serving.modelserver.observe.gpus import may_have_gpus, sample_gpus
from serving.modelserver.observe.observability import Observability
from serving.modelserver.one_model import OneModel
from serving.modelserver.ports import Ports
from serving.storage.base.artifact import Artifact

if TYPE_CHECKING:
    from serving.modelserver.grpc.server import GrpcServer

log = logging.getLogger(__name__)


class ServerModels(ModelRepository, Protocol):
    """The models of a server, one or many."""

    @property
    def app(self) -> ASGIApp:
        """The ASGI application of the data port at the start."""
        ...

    @property
    def pending(self) -> PendingRequests | None:
        """The queue of requests for the only model; None when each model has its own."""
        ...

    @property
    def waiting_requests(self) -> int:
        """Number of requests that wait for a model to load."""
        ...

    @property
    def confirmation(self) -> Confirmation | None:
        """Whether the platform has recorded the digest of the only model; None for a server of many models."""
        ...

    def attach(self, ports: Ports) -> None:
        """Serve on these ports."""
        ...

    async def prewarm(self) -> None:
        """Do the work that happens only once. Raises EngineError."""
        ...

    async def load(self, artifact: Callable[[], Artifact] | None = None) -> None:
        """Load the models of the start. Raises KnodelError when none can be served."""
        ...

    @property
    def stop_grace(self) -> float:
        """Seconds that a stop waits for a `load` that is still running."""
        ...

    def drain(self) -> float | None:
        """Become unready; return how many seconds requests may take, None when there can be none."""
        ...

    def refuse_waiting(self) -> None:
        """Answer all requests that still wait for a model with an error."""
        ...

    async def close(self) -> None:
        """Close all models; no request may follow."""
        ...


class ModelServer:
    """Serves on `sockets` from `start` to `close`. Create it inside the loop that runs it.

    `startup` has the times of the start so far.
    """

    def __init__(
        self, options: ServerOptions, sockets: Sockets, limits: ServerLimits, startup: StartupTimes | None = None
    ) -> None:
        self._options = options
        self.stats, make_models = _stats_and_models(options, startup)
        observability = Observability(options.observability, self.stats, own_stderr(), options.gateway_token)
        self._observability = observability
        self._sampling: asyncio.Task[None] | None = None
        self._hung = HungThreads(limits.body_memory)
        context = ServerContext(options, limits, BodyBudget(limits.body_memory), self._hung, observability)
        models = self._models = make_models(context)
        repository = RepositoryRoutes(models, BearerToken(options.token_sha256), is_open=options.pool is None)
        management = make_management_app(
            self.stats, observability.response_stats, observability.families, models.lifecycle, repository,
            models.confirmation,
        )  # fmt: skip
        self._ports = Ports(
            AsgiListener(observability.instrument(models.app), sockets.data, limits),
            AsgiListener(management, sockets.management, replace(limits, body=MAX_BODY_SIZE)),
            None if options.grpc_port is None else _make_grpc_server(models, context),
            observability,
        )
        models.attach(self._ports)

    @property
    def waiting_requests(self) -> int:
        """Number of requests that wait for a model to load."""
        return self._models.waiting_requests

    async def start(self) -> None:
        """Listen on all ports; a cold server is not ready before `load`. Raises CannotListen."""
        await self._ports.start(self._options.host, self._options.grpc_port or 0)
        if may_have_gpus(os.environ):
            self._sampling = asyncio.create_task(sample_gpus(self.stats, os.environ), name="GPUs")

    async def prewarm(self) -> None:
        """Prewarm a free pool member; call it before `start`. Raises EngineError."""
        await self._models.prewarm()

    async def load(self, artifact: Callable[[], Artifact] | None = None) -> None:
        """Load the model; a pool member first waits for its claim. `artifact` waits for the files of a started fetch.

        Raises StorageError, EngineError; requests that wait for the model are answered with 503 then.
        """
        await self._models.load(artifact)

    @property
    def stop_grace(self) -> float:
        """Seconds that a stop waits for a `load` that is still running."""
        return self._models.stop_grace

    async def device_lost(self) -> None:
        """Return when the accelerator is lost, so that the process cannot serve any more."""
        await self._hung.device_lost.wait()

    async def drain(self) -> None:
        """Become unready; return when no more requests arrive and all are answered."""
        log.info("stopping: not ready, finishing requests in flight")
        timeout = self._models.drain()
        if timeout is not None:
            await self._ports.drain(timeout)

    async def close(self, grpc_within: float | None = None) -> None:
        """Stop listening, and return when requests in flight have ended; gRPC calls within `grpc_within` seconds."""
        if self._sampling is not None:
            self._sampling.cancel()
        self._models.refuse_waiting()
        await self._ports.close(grpc_within)
        await self._observability.close()
        await self._models.close()
        log.info("stopped")


def _stats_and_models(
    options: ServerOptions, startup: StartupTimes | None
) -> tuple[Stats, Callable[[ServerContext], ServerModels]]:
    """Return the server's statistics, and a factory of its models."""
    if options.models is None:
        stats = Stats(time.monotonic, startup=startup)
        return stats, lambda context: OneModel(context, stats)
    from serving.modelserver.models.many import ManyModels, ManyStats

    many = ManyStats(time.monotonic, startup=startup)
    return many, partial(ManyModels, stats=many, folder=options.models)


def _make_grpc_server(models: ServerModels, context: ServerContext) -> GrpcServer:
    """Raises BadOptions where gRPC is not installed."""
    from serving.modelserver.grpc.server import GrpcServer

    watched = context.observability
    parts = models.lifecycle, models.pending, context.budget, context.limits
    return GrpcServer(*parts, watched.metrics, interceptors=watched.interceptors(), token=watched.token)
