"""The model of a server that has one: the model of its command line or, in a pool, of the load call that claims it.

A cold server has its assignment from the start, a pool member from its claim on. Both then take the same path:
`_assign` publishes the model's name and revision, `_load` loads it. Requests that arrive before a member has its model
wait in `pending`.
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
from serving.modelserver.base.errors import BadOptions, InvalidRequest, ModelConflict, NotReady
from serving.modelserver.base.first_digest import remember
from serving.modelserver.base.options import ServerOptions
from serving.modelserver.base.stats import Stats
from serving.modelserver.endpoints.app import health_routes, make_app
from serving.modelserver.endpoints.confirmation import NOT_CONFIRMED, Confirmation
from serving.modelserver.endpoints.pending_requests import PendingRequests
from serving.modelserver.endpoints.repository import LOADING, READY, IndexEntry
from serving.modelserver.execution.lifecycle import ModelLifecycle
from serving.modelserver.execution.workers import Workers
from serving.modelserver.model_host import MIN_THREADS, ModelHost, ServerContext
from serving.modelserver.pool.assignment_file import AssignmentFile, MemberClaim
from serving.modelserver.pool.prewarm import NAME as PREWARM
from serving.modelserver.pool.prewarm import prewarm
from serving.modelserver.ports import Ports
from serving.storage.base.artifact import Artifact

log = logging.getLogger(__name__)

FAILED: Final = "the model could not be loaded here: try again"
STOP_GRACE: Final = 5.0  # s; a model whose files are fetched is nearly loaded when the server is to stop


class OneModel:
    """The only model of a server. Create it inside the event loop; `pending` queues requests until `load` has ended."""

    def __init__(self, context: ServerContext, stats: Stats) -> None:
        options = context.options
        self._context = context
        self._options: ServerOptions = options
        self._stats = stats
        self._workers = Workers(MIN_THREADS, asyncio.get_running_loop(), hung=context.hung)
        known = options.assignment
        self.lifecycle = ModelLifecycle(self._workers, queues_before_load=known is None)
        self._claim: MemberClaim | None = None  # None for a server that is not a member of a pool
        if options.pool is not None:
            self._claim = MemberClaim(AssignmentFile(options.scratch, options.bounds), known)
        self.confirmation = Confirmation(needed=options.remembers and known is not None and not known.digest)
        health = make_app(health_routes(self.lifecycle))
        bounds = options.bounds
        self.pending: PendingRequests = PendingRequests(
            health, stats, context.budget, bounds.slots + options.queue, bounds.timeout
        )
        self._ports: Ports | None = None
        self._host: ModelHost | None = None

    @property
    def app(self) -> ASGIApp:
        """The ASGI application of the data port until the model is loaded."""
        return self.pending

    @property
    def waiting_requests(self) -> int:
        """Number of requests that wait for the model of a pool member."""
        return self.pending.waiting

    def attach(self, ports: Ports) -> None:
        """Serve on these ports. A cold server publishes there which model it will serve."""
        self._ports = ports
        if self._options.assignment is not None:
            self._serve(self._assign(self._options.assignment))

    async def prewarm(self) -> None:
        """Prewarm the engine of a free pool member, before its ports open. Raises EngineError."""
        options, context = self._options, self._context
        pool = options.pool
        if pool is not None and options.assignment is None:
            assignment = Assignment(PREWARM, PREWARM, "", "", pool.format, options.bounds)
            _ = ModelHost(assignment, context, Stats(time.monotonic), self._workers, self.lifecycle).app
            await self._workers.submit(lambda _: prewarm(pool, options.bounds, context.limits)).result

    async def load(self, artifact: Callable[[], Artifact] | None = None) -> None:
        """Load the model; a pool member first waits for its claim. `artifact` waits for the files of a started fetch.

        Raises StorageError, EngineError; requests that wait for the model are answered with 503 then.
        """
        try:
            host = self._host
            if host is None:
                if self._claim is None:
                    raise BadOptions("neither a model nor a pool is set: set --name and --storage-uri, or --pool")
                assignment = await self._claim.given
                self._stats.startup.claimed = True
                host = self._assign(assignment)
            await self._load(host, artifact)
        except Exception:
            self.pending.reject(NotReady(FAILED))
            raise

    @property
    def stop_grace(self) -> float:
        """Seconds that a stop waits for the load: none unless requests wait for it and the files are fetched."""
        return STOP_GRACE if self.waiting_requests and self._stats.startup.fetched else 0.0

    def drain(self) -> float | None:
        """Become unready; return how many seconds requests may take, None when none were ever routed here."""
        self.lifecycle.drain()
        self.confirmation.close()
        if not self.lifecycle.has_model:
            self.pending.reject(NotReady(self.lifecycle.reason))
        return None if self._host is None else self._host.assignment.bounds.timeout

    def refuse_waiting(self) -> None:
        """Stop waiting for the digest's confirmation. `drain` has answered the requests that waited for the model."""
        self.confirmation.close()

    async def close(self) -> None:
        """Close the model; no request may follow."""
        if self._host is None:
            self._workers.close()
        else:
            self._host.close()

    def index(self) -> Sequence[IndexEntry]:
        """Return the model's entry; none before the model is known."""
        if self._host is None:
            return ()
        assignment = self._host.assignment
        return (IndexEntry(assignment.name, assignment.revision, self._state()),)

    async def load_call(self, name: str, body: bytes) -> str:
        """Accept the assignment of a claim, and return before the model is loaded. Raises ServingError."""
        if self._claim is None:
            raise ModelConflict("this server is not a member of a pool: it serves the model of its command line")
        try:
            assignment = parse_assignment(name, body, self._options.bounds)
        except BadAssignment as error:
            raise InvalidRequest(str(error)) from error
        try:
            self._claim.take(assignment)
        except BadAssignment as error:  # this member cannot store it; another one may
            raise NotReady(str(error)) from error
        return self._state()

    async def unload_call(self, name: str) -> str:
        """Raise ModelConflict: the only model of a server cannot be unloaded."""
        raise ModelConflict("the only model of this server cannot be unloaded: stop the server")

    def _state(self) -> str:
        return READY if self.lifecycle.has_model else LOADING

    def _assign(self, assignment: Assignment) -> ModelHost:
        """Become the server of this model: label statistics, traces and responses with its revision."""
        bounds = assignment.bounds
        self._host = ModelHost(assignment, self._context, self._stats, self._workers, self.lifecycle)
        self._host.label_stats()
        self._context.observability.assign(assignment.name, assignment.revision)
        if self._ports is not None:
            self._ports.set_revision(assignment.revision)
        self.pending.set_limits(bounds.slots + self._options.queue, bounds.timeout)
        return self._host

    async def _load(self, host: ModelHost, artifact: Callable[[], Artifact] | None) -> None:
        startup = self._stats.startup
        warm = not startup.claimed  # a claim has a waiting request, whose inference a warm-up would only delay
        fetch_files = artifact or partial(host.fetch, startup.download)
        loop = asyncio.get_running_loop()

        def fetch_and_report() -> Artifact:
            files = fetch_files()
            # Report the digest before the load: recording it takes as long as loading the files.
            loop.call_soon_threadsafe(self.confirmation.set_digest, files.digest)
            return files

        model = await host.load(fetch_and_report, startup, warm=warm, confirm=self._confirm)
        if self._options.remembers:
            remember(self._options.scratch, startup.digest)
        self._stats.mark_served(model.memory)
        self._serve(host)
        self.pending.resolve(host.app)

    async def _confirm(self) -> None:
        """Return once the platform has recorded the digest of the loaded files; the server is not ready before."""
        if self.confirmation.confirmed:
            return
        log.info("waiting until the platform has recorded the digest of the model's files")
        self.lifecycle.blocked_reason = NOT_CONFIRMED
        await self.confirmation.wait()
        self.lifecycle.blocked_reason = ""

    def _serve(self, host: ModelHost) -> None:
        """Route the requests of all protocols to this model."""
        if self._ports is not None:
            model = host.assignment
            self._ports.serve_model(model.name, model.revision, host.app, host.inference)
