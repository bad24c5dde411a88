"""The outermost ASGI middleware of the data port: counts each response, and writes the access log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clusters.net.server.errors import RECEIVED_KEY, REFUSED_KEY
from serving.modelserver.base.errors import ClientLeft
from serving.modelserver.base.responses import BROKEN_KEY
from serving.modelserver.base.split import CURRENT, TOKENS_KEY, TokenTimes, is_of_split, without_token
from serving.modelserver.endpoints.pending_requests import HEALTH_PATHS
from serving.modelserver.observe.access_log import AccessLog
from serving.modelserver.observe.metrics import RequestMetrics

V1: Final = "v1"
V2: Final = "v2"
MLFLOW: Final = "mlflow"
OPENAI: Final = "openai"
APPLICATION: Final = "application"
"""Requests of a model that has paths of its own."""
OTHER: Final = "other"
"""Health, metadata, and unknown paths."""
TRACE_KEY: Final = "knodel.trace"
PARENT_KEY: Final = "knodel.traceparent"
"""Keys of the scope: the id of the request's trace, and the `traceparent` of its child spans, if it is traced."""
RERANK_V2: Final = "/v2/rerank"
"""Cohere's path, the only one of its kind below /v2."""
_FAILED: Final = 500  # the response when the application raises


class ObservabilityMiddleware:
    """ASGI middleware. `monotonic` returns seconds; `token` marks requests from the gateway (`is_of_split`)."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: RequestMetrics,
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
        """Serve a request and count its response.

        Without a response from the application or the connection, the client has disconnected (499). A response that
        fails after its status was sent counts with the status of the failure.
        """
        start, status = self._monotonic(), 0
        protocol = protocol_of(scope["method"], scope["path"], self._metrics.serves_own_paths)
        split = self._metrics.split
        counts = protocol != OTHER and is_of_split(scope["headers"], self._token)
        judged = split.begin(scope, start) if counts else None
        CURRENT.set(judged)
        if self._token:
            scope["headers"] = without_token(scope["headers"])

        def record(message: Message) -> Awaitable[None]:  # not a coroutine, because every request pays for it
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if judged is not None:
                    judged.answered_at = self._monotonic()
            return send(message)

        try:
            await self._app(scope, receive, record)
        except Exception:
            status = _FAILED
            raise
        finally:
            now = self._monotonic()
            seconds = now - start
            status = scope.get(BROKEN_KEY) or status or scope.get(REFUSED_KEY, ClientLeft.status)
            self._metrics.observe(protocol, status, seconds, scope.get(PARENT_KEY, ""))
            if protocol == OPENAI or TOKENS_KEY in scope or protocol in self._metrics.latencies:
                self._observe_latency(protocol, scope, status, seconds, now)
            if judged is not None:
                split.end(judged, status, now)
            if self._access_log is not None:
                trace = scope.get(TRACE_KEY, "")
                self._access_log.write(scope["method"], scope["path"], status, seconds, trace)

    def _observe_latency(self, protocol: str, scope: Scope, status: int, seconds: float, now: float) -> None:
        """Count the time to the first token of an answer that has tokens, else its whole time."""
        tokens: TokenTimes | None = scope.get(TOKENS_KEY)
        began = max(scope.get(RECEIVED_KEY, 0.0), now - seconds)
        latency = seconds if tokens is None else tokens.latency(began, status, now)
        self._metrics.observe_latency(protocol, status, latency)


def protocol_of(method: str, path: str, own_paths: bool = False) -> str:
    """Return the protocol of an inference request, which is always a POST; `OTHER` for all other requests.

    With `own_paths` the model itself answers all paths except those of health: `APPLICATION`.
    """
    if own_paths and path not in HEALTH_PATHS:
        return APPLICATION
    if method == "POST":
        start = path[:4]
        if start == "/v2/":
            return OPENAI if path == RERANK_V2 else V2
        if start == "/v1/":
            return V1 if path.startswith("/v1/models/") else OPENAI
        if path == "/invocations":
            return MLFLOW
        if path.startswith("/openai/"):
            return OPENAI
    return OTHER
