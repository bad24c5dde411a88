"""One name of a server with many models: what a request for it gets.

| loaded | barred | a request |
|---|---|---|
| yes | – | is answered |
| no | no | waits in the hold, and the model is asked for |
| no | yes | is answered 503: the model failed a moment ago, or was unloaded by a call |

A model that leaves counts as not loaded: who comes now waits until it is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from serving.modelserver.base.assignment import Assignment
from serving.modelserver.base.errors import NotFound, NotReady, ServingError
from serving.modelserver.base.responses import send_error
from serving.modelserver.base.stats import Stats
from serving.modelserver.endpoints.app import NO_PATH
from serving.modelserver.endpoints.pending_requests import PendingRequests
from serving.modelserver.endpoints.repository import LOADING, READY, UNAVAILABLE, UNLOADING, IndexEntry
from serving.modelserver.execution.lifecycle import Lifecycle
from serving.modelserver.execution.workers import Workers
from serving.modelserver.model_host import LEAST_THREADS, Shared, Unit
from serving.modelserver.models.folder import revision_of
from serving.modelserver.models.live import Live, labelled

ON_USE: Final = "it is loaded when it is asked for"
UNLOADED: Final = "unloaded by a call"
RETRY: Final = 10.0  # s at least; a model that could not be loaded is not tried for each of its requests
_UNLOADED: Final = "the model was unloaded: load it again, by the management port"
_FAILED: Final = "the model could not be loaded: try again later"
_HANGS: Final = "a thread hangs that was to load the model: mend the model, then load it, by the management port"
_V1: Final = "/v1/models/"


class Model:
    """`ask` is called with it when somebody waits for it; `now` gives monotonic seconds."""

    def __init__(
        self, assignment: Assignment, shared: Shared, stats: Stats, ask: Callable[[Model], None],
        now: Callable[[], float],
    ) -> None:  # fmt: skip
        self.assignment = assignment
        self.memory = 0  # bytes; as it was measured when the model was loaded last
        self.loading = False
        self.cost = 0.0  # s; what its last load took of the others' time
        self.hangs = False  # in a thread that was to load it, whose memory is in no account: no other one is begun
        self.reason = ON_USE  # why it is not loaded
        self.stats = stats
        self._shared = shared
        self._ask = ask
        self._now = now
        self._live: Live | None = None
        self._next: Unit | None = None
        self._hold: PendingRequests | None = None
        self._number = 0  # of the revisions that were served
        self._unloaded = False
        self._closed = ""
        self._retry_at = 0.0

    @property
    def live(self) -> Live | None:
        """What answers; None while nothing does."""
        live = self._live
        return None if live is None or live.leaving else live

    @property
    def upcoming(self) -> Assignment:
        """What a load call loads that says nothing else: the same, under the next revision."""
        return replace(self.assignment, revision=revision_of(self.assignment.name, self._number + 1))

    @property
    def awaited(self) -> bool:
        """Whether somebody asked for it and was not answered yet."""
        return self._hold is not None

    @property
    def held(self) -> int:
        """How many requests wait for it."""
        return 0 if self._hold is None else self._hold.waiting

    def entry(self) -> IndexEntry:
        """Of the index."""
        live = self._live
        if live is not None:
            return IndexEntry(self.assignment.name, self.assignment.revision, UNLOADING if live.leaving else READY)
        state, reason = (LOADING, "") if self.loading else (UNAVAILABLE, self.reason)
        return IndexEntry(self.assignment.name, self.assignment.revision, state, reason)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, now or when it is loaded."""
        live = self.live
        if live is not None:
            await live(scope, receive, send)
        elif _asks_whether_ready(scope):
            await labelled(self.waiting().app, self.assignment.revision)(scope, receive, send)
        else:
            try:
                hold = self.hold()
            except ServingError as error:
                await send_error(send, error)
            else:
                await hold(scope, receive, send)

    def hold(self) -> PendingRequests:
        """Where to wait for it. Raises NotReady."""
        barred = self._barred()
        if barred:
            raise NotReady(barred)
        if self._hold is None:
            bounds, shared = self.assignment.bounds, self._shared
            limit = bounds.slots + shared.options.queue
            self._hold = PendingRequests(_no_path, self.stats, shared.budget, limit, bounds.timeout)
            self._ask(self)
        return self._hold

    def waiting(self) -> Unit:
        """The unit that is to be loaded next."""
        if self._next is None:
            self._next = self.unit(self.assignment)
        self._next.lifecycle.withheld = self._barred()
        return self._next

    def unit(self, assignment: Assignment) -> Unit:
        """One that is not loaded."""
        workers = Workers(LEAST_THREADS, asyncio.get_running_loop(), hanging=self._shared.hanging)
        return Unit(assignment, self._shared, self.stats, workers, Lifecycle(workers, holds=True))

    def serve(self, live: Live) -> Live | None:
        """Answer by it, and who waits first; what answered up to now."""
        former, self._live = self.live, live
        self._number += not self._number or live.unit.assignment is not self.assignment
        self.assignment = live.unit.assignment
        self._next = None
        self._unloaded, self.hangs, self._retry_at = False, False, 0.0
        live.unit.announce()
        self.release()
        return former

    def gone(self, live: Live) -> None:
        """It is not loaded any more."""
        if self._live is live:
            self._live = None
            self.reason = UNLOADED if self._unloaded else ON_USE
            self.stats.mark_unloaded()

    def unload(self) -> None:
        """Nobody is let in until it is loaded by a call."""
        self._unloaded, self.reason = True, UNLOADED
        hold = self._take_hold()
        if hold is not None:
            hold.reject(NotReady(_UNLOADED))

    def release(self) -> None:
        """It is loaded: answer who waits."""
        hold = self._take_hold()
        if hold is not None:
            hold.resolve(self)

    def fail(self, reason: str) -> None:
        """It could not be loaded for those who wait. Others have as much time to load as its failure took."""
        self.reason, self._next = reason, None
        self._retry_at = self._now() + max(RETRY, self.cost)
        hold = self._take_hold()
        if hold is not None:
            hold.reject(NotReady(_FAILED))

    def close(self) -> None:
        """Let go of it; no request follows."""
        if self._live is not None:
            self._live.unit.close()

    def give_up(self, reason: str) -> None:
        """It is not loaded any more: who waits, or comes, is told so."""
        self._closed = reason
        if self._hold is not None:
            self._hold.reject(NotReady(reason))

    def _take_hold(self) -> PendingRequests | None:
        """Who waits now; whoever comes next begins to wait anew."""
        hold, self._hold = self._hold, None
        return hold

    def _barred(self) -> str:
        """Why nobody may wait for it, "" when everybody may."""
        if self._closed:
            return self._closed
        if self._unloaded:
            return _UNLOADED
        if self.hangs:
            return _HANGS
        return _FAILED if self._now() < self._retry_at else ""


def _asks_whether_ready(scope: Scope) -> bool:
    path: str = scope["path"]
    return scope["method"] != "POST" and (path.endswith("/ready") or path.startswith(_V1))


async def _no_path(_: Scope, __: Receive, send: Send) -> None:
    await send_error(send, NotFound(NO_PATH))
