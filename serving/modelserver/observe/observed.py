"""The outermost layer of the data port: each answer is counted, and written down when asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.modelserver.base.errors import ClientLeft
from serving.modelserver.base.split import CURRENT, is_of_split, without_token
from serving.modelserver.connections.connection import BROKEN_KEY, REFUSED_KEY
from serving.modelserver.observe.access_log import AccessLog
from serving.modelserver.observe.metrics import Metrics

V1: Final = "v1"
V2: Final = "v2"
OTHER: Final = "other"
"""Health, metadata, and what is no path of ours."""
TRACE_KEY: Final = "knodel.trace"
PARENT_KEY: Final = "knodel.traceparent"
"""Of the scope: the id of the request's trace, and the `traceparent` of what it causes, when it has one."""
_FAILED: Final = 500  # what a caller gets when the application raises


class Observed:
    """Wraps an application; `monotonic` gives seconds, `token` is of requests from the gateway (`is_of_split`)."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        access_log: AccessLog | None,
        monotonic: Callable[[], float],
        token: bytes = b"",
    ) -> None:
        self._token = token
        self._app = app
        self._metrics = metrics
        self._access_log = access_log
        self._monotonic = monotonic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, and tell; a request that neither application nor connection has answered is one whose caller left.

        An answer that breaks after its status has left counts with the status of what broke it.
        """
        start, status = self._monotonic(), 0
        protocol, split = protocol_of(scope["method"], scope["path"]), self._metrics.split
        counts = protocol != OTHER and is_of_split(scope["headers"], self._token)
        judged = split.begin(scope, start) if counts else None
        CURRENT.set(judged)
        if self._token:
            scope["headers"] = without_token(scope["headers"])

        def seen(message: Message) -> Awaitable[None]:  # no coroutine of its own: this is on the way of every request
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if judged is not None:
                    judged.answered_at = self._monotonic()
            return send(message)

        try:
            await self._app(scope, receive, seen)
        except Exception:
            status = _FAILED
            raise
        finally:
            now = self._monotonic()
            seconds = now - start
            status = scope.get(BROKEN_KEY) or status or scope.get(REFUSED_KEY, ClientLeft.status)
            self._metrics.observe(protocol, status, seconds)
            if judged is not None:
                split.end(judged, status, now)
            if self._access_log is not None:
                trace = scope.get(TRACE_KEY, "")
                self._access_log.write(scope["method"], scope["path"], status, seconds, trace)


def protocol_of(method: str, path: str) -> str:
    """The protocol of a request for an inference, else `OTHER`: whatever else there is, is read with GET."""
    if method == "POST":
        start = path[:4]
        if start == "/v2/":
            return V2
        if start == "/v1/":
            return V1
    return OTHER
