"""A server of one model: that of its command line, or, in a pool, of the load call that claims it.

A cold server knows its model when it is made, a pool member when it is claimed; from then on both go the same way:
`_assign` tells all who look, `_load` makes and fills the unit. What comes before a member has its model waits in
`PendingRequests`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from starlette.types import ASGIApp

from serving.modelserver.base.assignment import Assignment, BadAssignment, parse_assignment
from serving.modelserver.base.errors import BadOptions, BadRequest, Conflict, NotReady
from serving.modelserver.base.first_digest import remember
from serving.modelserver.base.options import ServerOptions
from serving.modelserver.base.stats import Stats
from serving.modelserver.endpoints.app import health_routes, make_app
from serving.modelserver.endpoints.confirmation import NOT_CONFIRMED, Confirmation
from serving.modelserver.endpoints.pending_requests import PendingRequests
from serving.modelserver.endpoints.repository import LOADING, READY, IndexEntry
from serving.modelserver.execution.lifecycle import Lifecycle
from serving.modelserver.execution.workers import Workers
from serving.modelserver.model_host import LEAST_THREADS, Shared, Unit
from serving.modelserver.pool.assignment_file import AssignmentFile
from serving.modelserver.pool.claim import Claim
from serving.modelserver.pool.prewarm import NAME as REHEARSAL
from serving.modelserver.pool.prewarm import rehearse
from serving.modelserver.ports import Ports
from serving.storage.base.artifact import Artifact

log = logging.getLogger(__name__)

FAILED: Final = "the model could not be loaded here: try again"
LOAD_PATIENCE: Final = 5.0  # s; a model whose files are here is nearly loaded when the server is to stop


class OneModel:
    """Its `hold` is in force until `load` has ended; made inside of the event loop."""

    def __init__(self, shared: Shared, stats: Stats) -> None:
        options = shared.options
        self._shared = shared
        self._options = options
        self._stats = stats
        self._workers = Workers(LEAST_THREADS, asyncio.get_running_loop(), hanging=shared.hanging)
        self.lifecycle = Lifecycle(self._workers, holds=options.assignment is None)
        self._claim = _claim_of(options)
        known = options.assignment
        self.confirmation = Confirmation(needed=options.remembers and known is not None and not known.digest)
        health = make_app(health_routes(self.lifecycle))
        bounds = options.bounds
        self.hold: PendingRequests = PendingRequests(
            health, stats, shared.budget, bounds.slots + options.queue, bounds.timeout
        )
        self._ports: Ports | None = None
        self._unit: Unit | None = None

    @property
    def app(self) -> ASGIApp:
        """What answers on the data port at first."""
        return self.hold

    @property
    def held(self) -> int:
        """How many requests wait for the model of a pool member."""
        return self.hold.waiting

    def attach(self, ports: Ports) -> None:
        """Answer on these; a cold server says there which model it will be."""
        self._ports = ports
        if self._options.assignment is not None:
            self._answer_by(self._assign(self._options.assignment))

    async def rehearse(self) -> None:
        """Of a free pool member, before its ports are open. Raises EngineError."""
        options, shared = self._options, self._shared
        pool = options.pool
        if pool is not None and options.assignment is None:
            assignment = Assignment(REHEARSAL, REHEARSAL, "", "", pool.format, options.bounds)
            _ = Unit(assignment, shared, Stats(time.monotonic), self._workers, self.lifecycle).app
            await self._workers.submit(lambda _: rehearse(pool, options.bounds, shared.limits)).answer

    async def load(self, artifact: Callable[[], Artifact] | None = None) -> None:
        """Load the model, whose `artifact` is on its way; a pool member waits for its claim first.

        Raises StorageError, EngineError; then all that waited for the model was told to try again.
        """
        try:
            unit = self._unit or await self._claimed()
            await self._load(unit, artifact)
        except Exception:
            self.hold.reject(NotReady(FAILED))
            raise

    @property
    def load_patience(self) -> float:
        """Seconds that a stop waits for the load: none, unless somebody waits for it and it is nearly done."""
        return LOAD_PATIENCE if self.held and self._stats.startup.fetched else 0.0

    def drain(self) -> float | None:
        """Not ready from now on; how long requests may still take, None when nobody was ever told to send any here."""
        self.lifecycle.drain()
        self.confirmation.close()
        if not self.lifecycle.serves:
            self.hold.reject(NotReady(self.lifecycle.reason))
        return None if self._unit is None else self._unit.assignment.bounds.timeout

    def give_up(self) -> None:
        """End the waits for the model's digest; requests that waited for the model were answered before."""
        self.confirmation.close()

    async def close(self) -> None:
        """Let go of the model; no request follows."""
        if self._unit is None:
            self._workers.close()
        else:
            self._unit.close()

    def index(self) -> Sequence[IndexEntry]:
        """The model, once it is known which."""
        if self._unit is None:
            return ()
        assignment = self._unit.assignment
        return (IndexEntry(assignment.name, assignment.revision, self._state()),)

    async def load_call(self, name: str, body: bytes) -> str:
        """Take the assignment, and answer before it is loaded. Raises ServingError."""
        if self._claim is None:
            raise Conflict("this server is no member of a pool: it serves the model of its command line")
        try:
            assignment = parse_assignment(name, body, self._options.bounds)
        except BadAssignment as error:
            raise BadRequest(str(error)) from error
        try:
            self._claim.take(assignment)
        except BadAssignment as error:  # it is this member that cannot keep it
            raise NotReady(str(error)) from error
        return self._state()

    async def unload_call(self, name: str) -> str:
        """Raises Conflict: a server of one model ends with it."""
        raise Conflict("this server has one model, and ends with it: stop the server")

    def _state(self) -> str:
        return READY if self.lifecycle.serves else LOADING

    async def _claimed(self) -> Unit:
        """Wait to be told what to serve."""
        if self._claim is None:
            raise BadOptions("neither a model nor a pool to wait in: set --name and --storage-uri, or --pool")
        assignment = await self._claim.given
        self._stats.startup.claimed = True
        return self._assign(assignment)

    def _assign(self, assignment: Assignment) -> Unit:
        """Be this model's server from now on, to all who look."""
        bounds = assignment.bounds
        self._unit = Unit(assignment, self._shared, self._stats, self._workers, self.lifecycle)
        self._unit.announce()
        self._shared.observability.assign(assignment.name, assignment.revision)
        if self._ports is not None:
            self._ports.label(assignment.revision)
        self.hold.set_limits(bounds.slots + self._options.queue, bounds.timeout)
        return self._unit

    async def _load(self, unit: Unit, artifact: Callable[[], Artifact] | None) -> None:
        startup = self._stats.startup
        warm = not startup.claimed  # somebody waits for a claim, whose inference is the first: another is in its way
        fetching = self._reported(artifact or partial(unit.fetch, startup.download))
        model = await unit.load(fetching, startup, warm=warm, confirmed=self._confirmed)
        if self._options.remembers:
            remember(self._options.scratch, startup.digest)
        self._stats.mark_served(model.memory)
        self._answer_by(unit)
        self.hold.resolve(unit.app)

    def _reported(self, artifact: Callable[[], Artifact]) -> Callable[[], Artifact]:
        """Return a fetch that reports the digest of the files at once: recording it takes as long as loading them."""
        loop = asyncio.get_running_loop()

        def fetch() -> Artifact:
            files = artifact()
            loop.call_soon_threadsafe(self.confirmation.set_digest, files.digest)
            return files

        return fetch

    async def _confirmed(self) -> None:
        """Return once the digest of the loaded files is the recorded one; the server is not ready before."""
        if self.confirmation.confirmed:
            return
        log.info("waiting until the platform has recorded the digest of the model's files")
        self.lifecycle.withheld = NOT_CONFIRMED
        await self.confirmation.wait()
        self.lifecycle.withheld = ""

    def _answer_by(self, unit: Unit) -> None:
        """Requests of all protocols are for this model from now on."""
        if self._ports is not None:
            model = unit.assignment
            self._ports.answer_by(model.name, model.revision, unit.app, unit.inference)


def _claim_of(options: ServerOptions) -> Claim | None:
    """Only a pool member can be claimed; one that remembers its assignment, only for that."""
    if options.pool is None:
        return None
    return Claim(AssignmentFile(options.scratch, options.bounds), options.assignment)
