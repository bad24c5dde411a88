"""One model server: two ports, one model, one event loop. Composes the parts.

A cold server knows its model when it is made, a pool member when it is claimed; from then on both go the same way:
`_assign` tells all who look, `_load` makes and fills the parts. What comes before a member has its model waits in
`Hold`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from serving.engines.base import EngineOptions
from serving.server.admission import Admission
from serving.server.app import DataApp, health_routes, make_app
from serving.server.assignment import Assignment
from serving.server.assignment_file import AssignmentFile
from serving.server.claim import Claim
from serving.server.endpoints import make_endpoints
from serving.server.errors import BadOptions, NotReady
from serving.server.hold import Hold
from serving.server.inference import Inference
from serving.server.lifecycle import Lifecycle
from serving.server.limits import BodyBudget, Limits
from serving.server.listener import Listener
from serving.server.loading import load_model
from serving.server.management import make_management_app
from serving.server.observability import Observability
from serving.server.options import ServerOptions
from serving.server.rehearsal import NAME as REHEARSAL
from serving.server.rehearsal import rehearse
from serving.server.repository import LARGEST_BODY, Repository
from serving.server.sockets import Sockets
from serving.server.stats import Stats
from serving.server.workers import Workers
from serving.storage.artifact import Artifact
from serving.storage.fetch import fetch

if TYPE_CHECKING:
    from serving.server.grpc.server import GrpcServer

log = logging.getLogger(__name__)

QUIET: Final = 0.25  # s without a request: those who send to us know by then that they should not
LEAST_THREADS: Final = 4  # so that one long inference does not keep the others out, however little CPU there is
FAILED: Final = "the model could not be loaded here: try again"


@dataclass(frozen=True, slots=True)
class _Apps:
    """What answers for one model: over HTTP, and by any other protocol."""

    assignment: Assignment
    http: DataApp
    inference: Inference


class Server:
    """Serves on `sockets` from `start` to `close`; made inside of the loop that runs it."""

    def __init__(self, options: ServerOptions, sockets: Sockets, limits: Limits) -> None:
        self._options = options
        self._limits = limits
        self.stats = Stats(time.monotonic)
        self._observability = Observability(options.observability, self.stats, sys.stderr)
        self._workers = Workers(LEAST_THREADS, asyncio.get_running_loop())
        self._lifecycle = Lifecycle(self._workers, holds=options.assignment is None)
        self._budget = BodyBudget(limits.bodies)
        claim = _claim_of(options)
        self._given = None if claim is None else claim.given
        bounds = options.bounds
        health = make_app(health_routes(self._lifecycle))
        self._hold = Hold(health, self.stats, self._budget, bounds.slots + options.queue, bounds.timeout)
        repository = Repository(claim, self._lifecycle, bounds)
        management = make_management_app(self.stats, self._observability.page, self._lifecycle, repository)
        self._data = Listener(self._observability.watch(self._hold), sockets.data, limits)
        self._management = Listener(management, sockets.management, replace(limits, body=LARGEST_BODY))
        self._grpc = self._make_grpc() if options.grpc_port is not None else None
        self._assignment: Assignment | None = None
        self._apps: _Apps | None = None
        if options.assignment is not None:
            self._assign(options.assignment)
            self._apps = self._make_apps(options.assignment)
            self._answer_by(self._apps)

    @property
    def held(self) -> int:
        """How many requests wait for the model of a pool member."""
        return self._hold.waiting

    async def start(self) -> None:
        """Answer on all ports; a cold server is not ready before `load`. Raises CannotListen."""
        await self._data.start()
        await self._management.start()
        if self._grpc is not None:
            port = await self._grpc.start(self._options.host, self._options.grpc_port or 0)
            log.info("gRPC at %s:%d", self._options.host, port)

    async def rehearse(self) -> None:
        """Of a free pool member, before `start`. Raises EngineError."""
        pool, bounds = self._options.pool, self._options.bounds
        if pool is not None and self._assignment is None:
            self._make_apps(Assignment(REHEARSAL, REHEARSAL, "", "", pool.format, bounds))
            await self._workers.submit(lambda _: rehearse(pool, bounds, self._limits)).answer

    async def load(self, artifact: Callable[[], Artifact] | None = None) -> None:
        """Load the model, whose `artifact` is on its way; a pool member waits for its claim first.

        It is loaded in a thread, so that health is answered meanwhile. Raises StorageError, EngineError; then all that
        waited for the model was told to try again.
        """
        try:
            assignment = self._assignment or await self._claimed()
            await self._load(assignment, artifact or self._fetching(assignment))
        except Exception:
            self._hold.close(NotReady(FAILED))
            raise

    async def drain(self) -> None:
        """Not ready from now on; return when nobody sends requests any more and all are answered."""
        self._lifecycle.drain()
        log.info("stopping: not ready any more, finishing what is in flight")
        if not self._lifecycle.serves:
            self._hold.close(NotReady(self._lifecycle.reason))
        if self._assignment is not None:  # else nobody was ever told to send requests here
            timeout = self._assignment.bounds.timeout
            draining = [self._data.drain(QUIET, timeout)]
            if self._grpc is not None:
                draining.append(self._grpc.drain(QUIET, timeout))
            await asyncio.gather(*draining)

    async def close(self) -> None:
        """Accept nothing more, and return when what is in flight has ended."""
        await self._data.close()
        await self._management.close()
        if self._grpc is not None:
            await self._grpc.close()
        await self._observability.close()
        self._workers.close()
        if self._lifecycle.serves:
            self._lifecycle.model().engine.close()
        log.info("stopped")

    async def _claimed(self) -> Assignment:
        """Wait to be told what to serve."""
        if self._given is None:
            raise BadOptions("neither a model nor a pool to wait in: set --name and --storage-uri, or --pool")
        assignment = await self._given
        self.stats.startup.claimed = True
        self._assign(assignment)
        return assignment

    def _assign(self, assignment: Assignment) -> None:
        """Be this model's server from now on, to all who look."""
        bounds = assignment.bounds
        self._assignment = assignment
        self.stats.revision, self.stats.slots = assignment.revision, bounds.slots
        self._observability.assign(assignment.name, assignment.revision)
        for listener in (self._data, self._management):
            listener.label(assignment.revision)
        if self._grpc is not None:
            self._grpc.label(assignment.revision)
        self._workers.resize(min(bounds.slots, max(LEAST_THREADS, 2 * math.ceil(bounds.cpu))))
        self._hold.bound(bounds.slots + self._options.queue, bounds.timeout)

    def _fetching(self, assignment: Assignment) -> Callable[[], Artifact]:
        options = self._options
        return partial(fetch, assignment.storage_uri, assignment.digest, options.cache, options.allow_hosts)

    async def _load(self, assignment: Assignment, artifact: Callable[[], Artifact]) -> None:
        startup = self.stats.startup
        warm = not startup.claimed  # somebody waits for a claim, whose inference is the first: another is in its way
        options = EngineOptions(assignment.bounds.threads, self._options.allow_code, self._options.signature)
        loading = self._workers.submit(
            lambda _: load_model(assignment, artifact, self._limits, startup, engine_options=options, warm=warm)
        )
        apps = self._apps or self._make_apps(assignment)  # of a claimed member while the thread is at work
        model = await loading.answer
        self._lifecycle.serve(model)
        self.stats.served()
        self._answer_by(apps)
        self._hold.open(apps.http)
        log.info(
            "serving model=%s revision=%s platform=%s imports=%.0fms load=%.0fms warmup=%.0fms",
            model.name, model.revision, model.signature.platform, startup.imports, startup.load, startup.warmup,
        )  # fmt: skip

    def _make_grpc(self) -> GrpcServer:
        """Raises BadOptions where gRPC is not installed."""
        from serving.server.grpc.server import GrpcServer

        watched = self._observability
        parts = self._lifecycle, self._hold, self._budget, self._limits
        return GrpcServer(*parts, watched.metrics, interceptors=watched.interceptors())

    def _make_apps(self, assignment: Assignment) -> _Apps:
        bounds = assignment.bounds
        admission = Admission(bounds.slots, self._options.queue, self.stats)
        loop = asyncio.get_running_loop()
        inference = self._observability.inference(self._lifecycle, admission, self._workers, bounds.timeout, loop)
        endpoints = make_endpoints(assignment.name, inference, self._budget)
        return _Apps(assignment, DataApp(assignment.name, assignment.revision, self._lifecycle, endpoints), inference)

    def _answer_by(self, apps: _Apps) -> None:
        """Requests of all protocols are for this model from now on."""
        self._data.answer_by(self._observability.watch(apps.http))
        if self._grpc is not None:
            self._grpc.answer_by(apps.assignment.name, apps.assignment.revision, apps.inference)


def _claim_of(options: ServerOptions) -> Claim | None:
    """Only a pool member can be claimed; one that remembers its assignment, only for that."""
    if options.pool is None:
        return None
    file = AssignmentFile(options.scratch, options.bounds)
    return Claim(options.pool.token_sha256, file, options.assignment)
