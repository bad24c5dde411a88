"""The data port of a server without a model: answer health checks, and hold all other requests.

Held inferences count as queued, so that the autoscaler sees them; requests for metadata do not. Bodies are read
meanwhile, within the budget of all bodies. When the model is loaded, its application serves the held requests.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from clusters.net.server.connection import HttpConnection
from clusters.net.server.protocol import connection_of
from serving.modelserver.base.errors import ClientLeft, Overloaded, QueueExpired, ServingError
from serving.modelserver.base.limits import BodyBudget
from serving.modelserver.base.responses import send_error
from serving.modelserver.base.stats import Stats
from serving.modelserver.codec.bounded_read import ReplayReceive, read_content
from serving.modelserver.execution.inference import BEGAN
from serving.modelserver.execution.slot_queue import QUEUE_FULL, fail_future

HEALTH_PATHS: Final = frozenset({"/v2/health/live", "/v2/health/ready"})
INFERENCE_METHOD: Final = "POST"
"""The method of inferences; all other paths of the application use GET."""


class PendingRequests:
    """An ASGI application that holds at most `limit` requests, each for at most `timeout` seconds."""

    def __init__(self, health: ASGIApp, stats: Stats, budget: BodyBudget, limit: int, timeout: float) -> None:
        self._health = health
        self._stats = stats
        self._budget = budget
        self._limit = limit
        self._timeout = timeout
        self._waiting: dict[asyncio.Future[ASGIApp], None] = {}
        self._closed: ServingError | None = None
        self._app: ASGIApp | None = None

    @property
    def waiting(self) -> int:
        """Return the number of held requests."""
        return len(self._waiting)

    def set_limits(self, limit: int, timeout: float) -> None:
        """Set limits for new requests; held ones keep their deadlines."""
        self._limit = limit
        self._timeout = timeout

    def resolve(self, app: ASGIApp) -> None:
        """Serve held requests by `app`, in order, and all later ones that still arrive here."""
        self._app = app
        for place in self._waiting:
            if not place.done():
                place.set_result(app)

    def reject(self, error: ServingError) -> None:
        """Answer held and later requests with `error`: no model will be loaded."""
        self._closed = error
        for place in self._waiting:
            fail_future(place, _copy(error))

    async def wait(self, *, work: bool) -> None:
        """Hold a request of another protocol until there is a model. Raises ServingError.

        `work` is true for inferences, which count as queued.
        """
        if self._app is not None:
            return
        self._stats.change(queued=int(work))
        try:
            place = self._enqueue()
            try:
                await place
            finally:
                self._dequeue(place)
        finally:
            self._stats.change(queued=-int(work))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, now or later."""
        if scope["path"] in HEALTH_PATHS:
            await self._health(scope, receive, send)
            return
        if self._app is not None:  # the task was created before `resolve`, and started after it
            await self._app(scope, receive, send)
            return
        scope.setdefault(BEGAN, asyncio.get_running_loop().time())  # the start of the request's timeout
        try:
            work = int(scope["method"] == INFERENCE_METHOD)
            self._stats.change(queued=work)
            try:
                app, content, lent = await self._read_and_wait(connection_of(scope, HttpConnection), receive)
            finally:
                self._stats.change(queued=-work)
        except ClientLeft:
            return
        except ServingError as error:
            await send_error(send, error)
            return
        self._budget.give_back(lent)  # `app` takes it again before other tasks can
        await app(scope, ReplayReceive(content, receive), send)

    async def _read_and_wait(self, connection: HttpConnection, receive: Receive) -> tuple[ASGIApp, bytes, int]:
        """Return the application, the body, and its bytes from the budget. Raises ServingError."""
        place = self._enqueue()
        cycle = connection.current_cycle

        def refuse(place: asyncio.Future[ASGIApp]) -> None:
            """Refuse the request only while its body arrives: later the connection may read another request."""
            error = None if place.cancelled() else place.exception()
            is_arriving = cycle is not None and cycle is connection.cycle and cycle.more_body
            if is_arriving and isinstance(error, ServingError):
                connection.refuse(error)

        place.add_done_callback(refuse)  # a slow body must not delay the refusal
        try:
            content, lent = await read_content(receive, self._budget)
            place.remove_done_callback(refuse)
            connection.on_disconnect(partial(fail_future, place, ClientLeft()))
            try:
                return await place, content, lent
            except BaseException:
                self._budget.give_back(lent)
                raise
        finally:
            connection.on_disconnect(None)
            self._dequeue(place)

    def _enqueue(self) -> asyncio.Future[ASGIApp]:
        if self._closed is not None:
            raise _copy(self._closed)
        if len(self._waiting) >= self._limit:
            raise Overloaded(QUEUE_FULL)
        loop = asyncio.get_running_loop()
        place: asyncio.Future[ASGIApp] = loop.create_future()
        expired = QueueExpired(f"no model was loaded within {self._timeout:g} s: try again")
        timer = loop.call_later(self._timeout, fail_future, place, expired)
        place.add_done_callback(lambda _: timer.cancel())
        self._waiting[place] = None
        return place

    def _dequeue(self, place: asyncio.Future[ASGIApp]) -> None:
        del self._waiting[place]
        if not place.cancel() and not place.cancelled():
            place.exception()  # mark it as retrieved, as there may be no waiter


def _copy(error: ServingError) -> ServingError:
    """Return a new error for each request: the traceback of a raised one keeps frames, and bodies, in memory."""
    return type(error)(str(error))
