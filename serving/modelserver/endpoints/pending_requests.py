"""The data port of a server that has no model yet: health is answered, all else waits for the model.

Inferences that wait count as queued, so that the autoscaler sees them; questions about the model are no work of its.
Bodies are read meanwhile, within the budget of all bodies, and handed on when the model is there: whatever was asked is
answered by the application of that model alone.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from serving.modelserver.base.errors import ClientLeft, Overloaded, QueueExpired, ServingError
from serving.modelserver.base.limits import BodyBudget
from serving.modelserver.base.responses import send_error
from serving.modelserver.base.stats import Stats
from serving.modelserver.codec.bounded_read import ReplayReceive, read_content
from serving.modelserver.connections.connection import HttpConnection, connection_of
from serving.modelserver.execution.admission import FULL, fail
from serving.modelserver.execution.inference import BEGAN

HEALTH: Final = frozenset({"/v2/health/live", "/v2/health/ready"})
WORK: Final = "POST"
"""Method of an inference; the application's other paths are read with GET."""


class PendingRequests:
    """ASGI application; at most `limit` requests wait, each at most `timeout` seconds."""

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
        """How many requests wait."""
        return len(self._waiting)

    def bound(self, limit: int, timeout: float) -> None:
        """Other bounds from now on; who waits keeps its deadline."""
        self._limit = limit
        self._timeout = timeout

    def open(self, app: ASGIApp) -> None:
        """There is a model: `app` answers what waits, in order, and what was on its way here and comes only now."""
        self._app = app
        for place in self._waiting:
            if not place.done():
                place.set_result(app)

    def close(self, error: ServingError) -> None:
        """There will be no model: what waits and what still comes is answered with `error`."""
        self._closed = error
        for place in self._waiting:
            fail(place, _another(error))

    async def wait(self, *, work: bool) -> None:
        """Of a request by another protocol, which is work or not: until there is a model. Raises ServingError."""
        if self._app is not None:
            return
        self._stats.change(queued=int(work))
        try:
            place = self._join()
            try:
                await place
            finally:
                self._leave(place)
        finally:
            self._stats.change(queued=-int(work))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, now or later."""
        if scope["path"] in HEALTH:
            await self._health(scope, receive, send)
            return
        if self._app is not None:  # its task was made before `open`, and began after it
            await self._app(scope, receive, send)
            return
        scope.setdefault(BEGAN, asyncio.get_running_loop().time())  # the time that the request may take begins here
        try:
            app, content, lent = await self._counted(scope, receive)
        except ClientLeft:
            return
        except ServingError as error:
            await send_error(send, error)
            return
        self._budget.give_back(lent)  # who reads it again borrows it again, before anybody else can
        await app(scope, ReplayReceive(content, receive), send)

    async def _counted(self, scope: Scope, receive: Receive) -> tuple[ASGIApp, bytes, int]:
        """As `_held`, which is work to be done or not. Raises ServingError."""
        work = int(scope["method"] == WORK)
        self._stats.change(queued=work)
        try:
            return await self._held(connection_of(scope), receive)
        finally:
            self._stats.change(queued=-work)

    async def _held(self, connection: HttpConnection, receive: Receive) -> tuple[ASGIApp, bytes, int]:
        """Who answers, the body, and how much of it is lent. Raises ServingError."""
        place = self._join()
        refuse = partial(_refuse, connection, connection.current_cycle)
        place.add_done_callback(refuse)  # a body that comes slowly keeps nobody waiting for the refusal
        try:
            content, lent = await read_content(receive, self._budget)
            place.remove_done_callback(refuse)
            connection.on_disconnect(partial(fail, place, ClientLeft()))
            try:
                return await place, content, lent
            except BaseException:
                self._budget.give_back(lent)
                raise
        finally:
            connection.on_disconnect(None)
            self._leave(place)

    def _join(self) -> asyncio.Future[ASGIApp]:
        if self._closed is not None:
            raise _another(self._closed)
        if len(self._waiting) >= self._limit:
            raise Overloaded(FULL)
        loop = asyncio.get_running_loop()
        place: asyncio.Future[ASGIApp] = loop.create_future()
        expired = QueueExpired(f"no model was loaded within {self._timeout:g} s: try again")
        timer = loop.call_later(self._timeout, fail, place, expired)
        place.add_done_callback(lambda _: timer.cancel())
        self._waiting[place] = None
        return place

    def _leave(self, place: asyncio.Future[ASGIApp]) -> None:
        del self._waiting[place]
        if not place.cancel() and not place.cancelled():
            place.exception()  # seen, though nobody may have waited for it


def _another(error: ServingError) -> ServingError:
    """One for each request: an error that is raised keeps all that was on its way, bodies included."""
    return type(error)(str(error))


def _refuse(connection: HttpConnection, cycle: RequestResponseCycle | None, place: asyncio.Future[ASGIApp]) -> None:
    """Only while the body comes: else whoever has read it tells, and what the connection reads is another request."""
    error = None if place.cancelled() else place.exception()
    is_coming = cycle is not None and cycle is connection.cycle and cycle.more_body
    if is_coming and isinstance(error, ServingError):
        connection.refuse(error)
