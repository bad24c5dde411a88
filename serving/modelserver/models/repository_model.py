"""One model name of a server of many models, and how its requests are answered.

| loaded | blocked | a request |
|---|---|---|
| yes | – | is answered |
| no | no | waits, and the load of the model is requested |
| no | yes | is answered 503: a load has just failed, or a call has unloaded the model |

A model that is being unloaded counts as not loaded: new requests wait until it is loaded again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from serving.modelserver.base.assignment import Assignment
from serving.modelserver.base.errors import NotReady, ResourceNotFound, ServingError
from serving.modelserver.base.responses import send_error
from serving.modelserver.base.stats import Stats
from serving.modelserver.endpoints.app import NO_PATH
from serving.modelserver.endpoints.pending_requests import PendingRequests
from serving.modelserver.endpoints.repository import LOADING, READY, UNAVAILABLE, UNLOADING, IndexEntry
from serving.modelserver.execution.lifecycle import ModelLifecycle
from serving.modelserver.execution.workers import Workers
from serving.modelserver.model_host import MIN_THREADS, ModelHost, ServerContext
from serving.modelserver.models.folder import revision_of
from serving.modelserver.models.loaded_revision import LoadedRevision, with_revision

ON_FIRST_REQUEST: Final = "it is loaded on the first request"
UNLOADED: Final = "unloaded by a call"
RETRY: Final = 10.0  # s; the shortest time between a failed load and the next attempt
_UNLOADED: Final = "the model was unloaded: load it again on the management port"
_FAILED: Final = "the model could not be loaded: try again later"
_HUNG: Final = "a thread that loads the model hangs: correct the model, then load it on the management port"
_V1: Final = "/v1/models/"


class RepositoryModel:
    """One model of a server of many. `request_load` is called when requests wait; `now` returns monotonic seconds."""

    def __init__(
        self, assignment: Assignment, context: ServerContext, stats: Stats,
        request_load: Callable[[RepositoryModel], None], now: Callable[[], float],
    ) -> None:  # fmt: skip
        self.assignment = assignment
        self.memory = 0  # bytes; measured at the last load
        self.loading = False
        self.load_seconds = 0.0  # duration of the last load, in which no other model could be loaded
        self.hung = False  # a thread that loads it hangs, with memory that is not accounted for: start no further load
        self.reason = ON_FIRST_REQUEST  # why it is not loaded
        self.stats = stats
        self._context = context
        self._request_load = request_load
        self._now = now
        self._loaded: LoadedRevision | None = None
        self._next: ModelHost | None = None
        self._pending: PendingRequests | None = None
        self._number = 0  # of the last revision that was served
        self._unloaded = False
        self._closed_reason = ""
        self._retry_at = 0.0

    @property
    def loaded(self) -> LoadedRevision | None:
        """The loaded model that answers requests; None when there is none."""
        loaded = self._loaded
        return None if loaded is None or loaded.unloading else loaded

    @property
    def upcoming(self) -> Assignment:
        """The default assignment of a load call: the present one with the next revision number."""
        return replace(self.assignment, revision=revision_of(self.assignment.name, self._number + 1))

    @property
    def awaited(self) -> bool:
        """Whether requests wait for the model."""
        return self._pending is not None

    @property
    def waiting_requests(self) -> int:
        """Number of requests that wait for the model."""
        return 0 if self._pending is None else self._pending.waiting

    def entry(self) -> IndexEntry:
        """Return the model's entry in the repository index."""
        loaded = self._loaded
        if loaded is not None:
            return IndexEntry(self.assignment.name, self.assignment.revision, UNLOADING if loaded.unloading else READY)
        state, reason = (LOADING, "") if self.loading else (UNAVAILABLE, self.reason)
        return IndexEntry(self.assignment.name, self.assignment.revision, state, reason)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, now or when the model is loaded."""
        loaded = self.loaded
        path: str = scope["path"]
        if loaded is not None:
            await loaded(scope, receive, send)
        elif scope["method"] != "POST" and (path.endswith("/ready") or path.startswith(_V1)):  # asks for readiness
            await with_revision(self.next_host().app, self.assignment.revision)(scope, receive, send)
        else:
            try:
                pending = self.pending()
            except ServingError as error:
                await send_error(send, error)
            else:
                await pending(scope, receive, send)

    def pending(self) -> PendingRequests:
        """Return the queue of requests that wait for the model. Raises NotReady."""
        reason = self._blocked_reason()
        if reason:
            raise NotReady(reason)
        if self._pending is None:
            bounds, context = self.assignment.bounds, self._context
            limit = bounds.slots + context.options.queue
            self._pending = PendingRequests(_answer_no_path, self.stats, context.budget, limit, bounds.timeout)
            self._request_load(self)
        return self._pending

    def next_host(self) -> ModelHost:
        """Return the host of the next load, which answers readiness until then."""
        if self._next is None:
            self._next = self.make_host(self.assignment)
        self._next.lifecycle.blocked_reason = self._blocked_reason()
        return self._next

    def make_host(self, assignment: Assignment) -> ModelHost:
        """Return a new host, whose model is not loaded."""
        workers = Workers(MIN_THREADS, asyncio.get_running_loop(), hung=self._context.hung)
        lifecycle = ModelLifecycle(workers, queues_before_load=True)
        return ModelHost(assignment, self._context, self.stats, workers, lifecycle)

    def serve(self, loaded: LoadedRevision) -> LoadedRevision | None:
        """Answer all requests by `loaded`, those that wait first; return the one that answered until now."""
        former, self._loaded = self.loaded, loaded
        self._number += not self._number or loaded.host.assignment is not self.assignment
        self.assignment = loaded.host.assignment
        self._next = None
        self._unloaded, self.hung, self._retry_at = False, False, 0.0
        loaded.host.label_stats()
        self.answer_waiting()
        return former

    def remove(self, loaded: LoadedRevision) -> None:
        """Forget a loaded model that was closed."""
        if self._loaded is loaded:
            self._loaded = None
            self.reason = UNLOADED if self._unloaded else ON_FIRST_REQUEST
            self.stats.mark_unloaded()

    def unload(self) -> None:
        """Refuse requests until a call loads the model again."""
        self._unloaded, self.reason = True, UNLOADED
        pending = self._take_pending()
        if pending is not None:
            pending.reject(NotReady(_UNLOADED))

    def answer_waiting(self) -> None:
        """Answer the waiting requests, now that the model is loaded."""
        pending = self._take_pending()
        if pending is not None:
            pending.resolve(self)

    def fail(self, reason: str) -> None:
        """Refuse the waiting requests after a failed load, and all requests until the next attempt.

        The next attempt comes no sooner than the failed one took, so that other models get as much time to load.
        """
        self.reason, self._next = reason, None
        self._retry_at = self._now() + max(RETRY, self.load_seconds)
        pending = self._take_pending()
        if pending is not None:
            pending.reject(NotReady(_FAILED))

    def close(self) -> None:
        """Close the loaded model; no request may follow."""
        if self._loaded is not None:
            self._loaded.host.close()

    def refuse_waiting(self, reason: str) -> None:
        """Refuse all requests, waiting and future ones, because the server stops."""
        self._closed_reason = reason
        if self._pending is not None:
            self._pending.reject(NotReady(reason))

    def _take_pending(self) -> PendingRequests | None:
        """Return the queue of waiting requests, and replace it: later requests start a new one."""
        pending, self._pending = self._pending, None
        return pending

    def _blocked_reason(self) -> str:
        """Return why requests may not wait for the model; "" when they may."""
        if self._closed_reason:
            return self._closed_reason
        if self._unloaded:
            return _UNLOADED
        if self.hung:
            return _HUNG
        return _FAILED if self._now() < self._retry_at else ""


async def _answer_no_path(_: Scope, __: Receive, send: Send) -> None:
    await send_error(send, ResourceNotFound(NO_PATH))
