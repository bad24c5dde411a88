"""One model server: its ports, its models, one event loop. Composes the parts.

Which models is the work of `OneModel` or, of a server that has many, of `models.ManyModels`; both look the same from
here.
"""

from __future__ import annotations

import logging
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
from serving.modelserver.connections.listener import HttpListener
from serving.modelserver.connections.sockets import Sockets
from serving.modelserver.endpoints.confirmation import Confirmation
from serving.modelserver.endpoints.management import make_management_app
from serving.modelserver.endpoints.pending_requests import PendingRequests
from serving.modelserver.endpoints.repository import MAX_BODY_SIZE, BearerToken, ModelRepository, RepositoryRoutes
from serving.modelserver.execution.hanging import Hanging
from serving.modelserver.model_host import Shared
from serving.modelserver.observe.observability import Observability
from serving.modelserver.one_model import OneModel
from serving.modelserver.ports import Ports
from serving.storage.base.artifact import Artifact

if TYPE_CHECKING:
    from serving.modelserver.grpc.server import GrpcServer

log = logging.getLogger(__name__)


class Served(ModelRepository, Protocol):
    """The models of a server, one or many."""

    @property
    def app(self) -> ASGIApp:
        """What answers on the data port at first."""
        ...

    @property
    def hold(self) -> PendingRequests | None:
        """Where requests wait for the only model; None where each model has its own place for them."""
        ...

    @property
    def held(self) -> int:
        """How many requests wait for a model."""
        ...

    @property
    def confirmation(self) -> Confirmation | None:
        """Whether the digest of the only model's files is recorded; None for a server of many models."""
        ...

    def attach(self, ports: Ports) -> None:
        """Answer on these."""
        ...

    async def rehearse(self) -> None:
        """Do what happens only once. Raises EngineError."""
        ...

    async def load(self, artifact: Callable[[], Artifact] | None = None) -> None:
        """Load what is to be loaded at the start. Raises KnodelError when nothing can be served."""
        ...

    @property
    def load_patience(self) -> float:
        """Seconds that a stop waits for `load`, while that is at work."""
        ...

    def drain(self) -> float | None:
        """Not ready from now on; seconds that requests may still take, None when there are none to wait for."""
        ...

    def give_up(self) -> None:
        """Who still waits for a model waits in vain."""
        ...

    async def close(self) -> None:
        """Let go of all models; no request follows."""
        ...


class Server:
    """Serves on `sockets` from `start` to `close`; made inside of the loop that runs it.

    `startup` is what the start took so far.
    """

    def __init__(
        self, options: ServerOptions, sockets: Sockets, limits: ServerLimits, startup: StartupTimes | None = None
    ) -> None:
        self._options = options
        self.stats, make_models = _stats_and_models(options, startup)
        observability = Observability(options.observability, self.stats, own_stderr(), options.gateway_token)
        self._observability = observability
        self._hanging = Hanging(limits.body_memory)
        shared = Shared(options, limits, BodyBudget(limits.body_memory), self._hanging, observability)
        self._models = make_models(shared)
        self._ports = self._make_ports(sockets, shared)
        self._models.attach(self._ports)

    @property
    def held(self) -> int:
        """How many requests wait for a model that is not loaded yet."""
        return self._models.held

    async def start(self) -> None:
        """Answer on all ports; a cold server is not ready before `load`. Raises CannotListen."""
        await self._ports.start(self._options.host, self._options.grpc_port or 0)

    async def rehearse(self) -> None:
        """Of a free pool member, before `start`. Raises EngineError."""
        await self._models.rehearse()

    async def load(self, artifact: Callable[[], Artifact] | None = None) -> None:
        """Load the model, whose `artifact` is on its way; a pool member waits for its claim first.

        Raises StorageError, EngineError; then all that waited for the model was told to try again.
        """
        await self._models.load(artifact)

    @property
    def load_patience(self) -> float:
        """Seconds that a stop waits for `load`, while that is at work."""
        return self._models.load_patience

    async def device_lost(self) -> None:
        """Return when no call on the accelerator can succeed any more: the process is of no use."""
        await self._hanging.device_lost.wait()

    async def drain(self) -> None:
        """Not ready from now on; return when nobody sends requests any more and all are answered."""
        log.info("stopping: not ready any more, finishing what is in flight")
        timeout = self._models.drain()
        if timeout is not None:
            await self._ports.drain(timeout)

    async def close(self, grpc_within: float | None = None) -> None:
        """Accept nothing more, and return when what is in flight has ended; calls by gRPC within that many seconds."""
        self._models.give_up()
        await self._ports.close(grpc_within)
        await self._observability.close()
        await self._models.close()
        log.info("stopped")

    def _make_ports(self, sockets: Sockets, shared: Shared) -> Ports:
        models, observability, limits = self._models, self._observability, shared.limits
        options = self._options
        repository = RepositoryRoutes(models, BearerToken(options.token_sha256), is_open=options.pool is None)
        management = make_management_app(
            self.stats, observability.answers, observability.page, models.lifecycle, repository, models.confirmation
        )
        return Ports(
            HttpListener(observability.watch(models.app), sockets.data, limits),
            HttpListener(management, sockets.management, replace(limits, body=MAX_BODY_SIZE)),
            None if options.grpc_port is None else _grpc_of(models, shared),
            observability,
        )


def _stats_and_models(options: ServerOptions, startup: StartupTimes | None) -> tuple[Stats, Callable[[Shared], Served]]:
    """How busy the models are, and how to make them."""
    if options.models is None:
        stats = Stats(time.monotonic, startup=startup)
        return stats, lambda shared: OneModel(shared, stats)
    from serving.modelserver.models.many import ManyModels
    from serving.modelserver.models.stats import ManyStats

    many = ManyStats(time.monotonic, startup=startup)
    return many, partial(ManyModels, stats=many, folder=options.models)


def _grpc_of(models: Served, shared: Shared) -> GrpcServer:
    """Raises BadOptions where gRPC is not installed."""
    from serving.modelserver.grpc.server import GrpcServer

    watched = shared.observability
    parts = models.lifecycle, models.hold, shared.budget, shared.limits
    return GrpcServer(*parts, watched.metrics, interceptors=watched.interceptors(), token=watched.token)
