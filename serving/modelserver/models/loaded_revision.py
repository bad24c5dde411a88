"""A loaded model and the number of its requests in flight; it may be unloaded only when there are none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.modelserver.base.headers import REVISION
from serving.modelserver.model_host import ModelHost


class LoadedRevision:
    """ASGI application of a loaded model of `memory` bytes. `now` returns monotonic seconds.

    Not thread-safe: only the event loop may use it.
    """

    def __init__(self, host: ModelHost, memory: int, now: Callable[[], float]) -> None:
        self.host = host
        self.memory = memory
        self.unloading = False  # no new requests are accepted
        self.used_at = now()
        self._now = now
        self._users = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._app = with_revision(host.app, host.assignment.revision)

    @property
    def in_use(self) -> bool:
        """Whether requests are in flight."""
        return self._users > 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        self.acquire()
        try:
            await self._app(scope, receive, send)
        finally:
            self.release()

    def acquire(self) -> None:
        """Count a request in flight, until `release`."""
        self._users += 1
        self.used_at = self._now()
        self._idle.clear()

    def release(self) -> None:
        """Stop counting a request that was answered."""
        self._users -= 1
        self.used_at = self._now()
        if not self._users:
            self._idle.set()

    async def wait_idle(self) -> None:
        """Return when no request is in flight."""
        await self._idle.wait()


def with_revision(app: ASGIApp, revision: str) -> ASGIApp:
    """Return an application that adds the revision header to the responses of `app`."""
    header = (REVISION, revision.encode())

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        def send_with_header(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                message["headers"] = [header, *message["headers"]]
            return send(message)

        await app(scope, receive, send_with_header)

    return answer
