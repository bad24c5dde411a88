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
from dataclasses import replace
from functools import partial
from typing import Final

from starlette.types import ASGIApp

from serving.server.access_log import AccessLog
from serving.server.admission import Admission
from serving.server.app import DataApp, health_routes, make_app
from serving.server.assignment import Assignment
from serving.server.assignment_file import AssignmentFile
from serving.server.claim import Claim
from serving.server.errors import BadOptions, NotReady
from serving.server.hold import Hold
from serving.server.infer import Infer
from serving.server.lifecycle import Lifecycle
from serving.server.limits import BodyBudget, Limits
from serving.server.listener import Listener
from serving.server.loading import load_model
from serving.server.management import make_management_app
from serving.server.options import ServerOptions
from serving.server.rehearsal import NAME as REHEARSAL
from serving.server.rehearsal import rehearse
from serving.server.repository import LARGEST_BODY, Repository
from serving.server.sockets import Sockets
from serving.server.stats import Stats
from serving.server.workers import Workers
from serving.storage.artifact import Artifact
from serving.storage.fetch import fetch

log = logging.getLogger(__name__)

QUIET: Final = 0.25  # s without a request: those who send to us know by then that they should not
LEAST_THREADS: Final = 4  # so that one long inference does not keep the others out, however little CPU there is
FAILED: Final = "the model could not be loaded here: try again"


class Server:
    """Serves on `sockets` from `start` to `close`; made inside of the loop that runs it."""

    def __init__(self, options: ServerOptions, sockets: Sockets, limits: Limits) -> None:
        self._options = options
        self._limits = limits
        self.stats = Stats(time.monotonic)
        self._workers = Workers(LEAST_THREADS, asyncio.get_running_loop())
        self._lifecycle = Lifecycle(self._workers, holds=options.assignment is None)
        self._budget = BodyBudget(limits.bodies)
        claim = _claim_of(options)
        self._given = None if claim is None else claim.given
        bounds = options.bounds
        health = make_app(health_routes(self._lifecycle))
        self._hold = Hold(health, self.stats, self._budget, bounds.slots + options.queue, bounds.timeout)
        repository = Repository(claim, self._lifecycle, bounds)
        management = make_management_app(self.stats, self._lifecycle, repository)
        self._data = Listener(self._logged(self._hold), sockets.data, limits)
        self._management = Listener(management, sockets.management, replace(limits, body=LARGEST_BODY))
        self._assignment: Assignment | None = None
        self._app: DataApp | None = None
        if options.assignment is not None:
            self._assign(options.assignment)
            self._app = self._make_app(options.assignment)
            self._data.answer_by(self._logged(self._app))

    @property
    def held(self) -> int:
        """How many requests wait for the model of a pool member."""
        return self._hold.waiting

    async def start(self) -> None:
        """Answer on both ports; a cold server is not ready before `load`."""
        await self._data.start()
        await self._management.start()

    async def rehearse(self) -> None:
        """Of a free pool member, before `start`. Raises EngineError."""
        pool, bounds = self._options.pool, self._options.bounds
        if pool is not None and self._assignment is None:
            self._make_app(Assignment(REHEARSAL, REHEARSAL, "", "", pool.format, bounds))
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
            await self._data.drain(QUIET, self._assignment.bounds.timeout)

    async def close(self) -> None:
        """Accept nothing more, and return when what is in flight has ended."""
        await self._data.close()
        await self._management.close()
        self._workers.close()
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
        for listener in (self._data, self._management):
            listener.label(assignment.revision)
        self._workers.resize(min(bounds.slots, max(LEAST_THREADS, 2 * math.ceil(bounds.cpu))))
        self._hold.bound(bounds.slots + self._options.queue, bounds.timeout)

    def _fetching(self, assignment: Assignment) -> Callable[[], Artifact]:
        options = self._options
        return partial(fetch, assignment.storage_uri, assignment.digest, options.cache, options.allow_hosts)

    async def _load(self, assignment: Assignment, artifact: Callable[[], Artifact]) -> None:
        startup = self.stats.startup
        warm = not startup.claimed  # somebody waits for a claim, whose inference is the first: another is in its way
        loading = self._workers.submit(lambda _: load_model(assignment, artifact, self._limits, startup, warm=warm))
        app = self._app or self._make_app(assignment)  # of a claimed member while the thread is at work
        model = await loading.answer
        self._lifecycle.serve(model)
        self.stats.served()
        self._data.answer_by(self._logged(app))
        self._hold.open(app)
        log.info(
            "serving model=%s revision=%s platform=%s imports=%.0fms load=%.0fms warmup=%.0fms",
            model.name, model.revision, model.signature.platform, startup.imports, startup.load, startup.warmup,
        )  # fmt: skip

    def _make_app(self, assignment: Assignment) -> DataApp:
        bounds = assignment.bounds
        admission = Admission(bounds.slots, self._options.queue, self.stats)
        loop = asyncio.get_running_loop()
        infer = Infer(self._lifecycle, admission, self._workers, self._budget, bounds.timeout, loop)
        return DataApp(assignment.name, assignment.revision, self._lifecycle, infer)

    def _logged(self, app: ASGIApp) -> ASGIApp:
        return AccessLog(app, time.monotonic, sys.stderr) if self._options.access_log else app


def _claim_of(options: ServerOptions) -> Claim | None:
    """Only a pool member can be claimed; one that remembers its assignment, only for that."""
    if options.pool is None:
        return None
    file = AssignmentFile(options.scratch, options.bounds)
    return Claim(options.pool.token_sha256, file, options.assignment)
