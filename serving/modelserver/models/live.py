"""A model that is loaded, and the requests that are in it: it goes only when there are none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.modelserver.base.headers import REVISION
from serving.modelserver.model_host import Unit


class Live:
    """`memory` in bytes; `now` gives monotonic seconds. Used by one event loop."""

    def __init__(self, unit: Unit, memory: int, now: Callable[[], float]) -> None:
        self.unit = unit
        self.memory = memory
        self.leaving = False  # newcomers are not let in
        self.used_at = now()
        self._now = now
        self._users = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._app = labelled(unit.app, unit.assignment.revision)

    @property
    def in_use(self) -> bool:
        """Whether requests are in it."""
        return self._users > 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        self.enter()
        try:
            await self._app(scope, receive, send)
        finally:
            self.leave()

    def enter(self) -> None:
        """A request is in it, until `leave`."""
        self._users += 1
        self.used_at = self._now()
        self._quiet.clear()

    def leave(self) -> None:
        """It is answered."""
        self._users -= 1
        self.used_at = self._now()
        if not self._users:
            self._quiet.set()

    async def quiet(self) -> None:
        """Return when no request is in it."""
        await self._quiet.wait()


def labelled(app: ASGIApp, revision: str) -> ASGIApp:
    """`app`, whose answers tell their revision."""
    header = (REVISION, revision.encode())

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        def tell(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                message["headers"] = [header, *message["headers"]]
            return send(message)

        await app(scope, receive, tell)

    return answer
