"""Observe the status of gRPC calls, and write their access log. Imported only when it is enabled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from serving.modelserver.grpc.library import grpc
from serving.modelserver.grpc.statuses import FAULTS, code_of
from serving.modelserver.observe.access_log import GRPC, AccessLog

Behaviour = Callable[[Any, Any], Awaitable[Any]]
"""A handler of a call: takes messages and context, returns the response."""


class AccessLogInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Logs each call of a known method. `trace` returns the id of the current trace, "" without one."""

    def __init__(self, access_log: AccessLog, trace: Callable[[], str], monotonic: Callable[[], float]) -> None:
        self._access_log = access_log
        self._trace = trace
        self._monotonic = monotonic

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """Return the method's handler with logging."""
        handler = await continuation(details)
        if handler is None:
            return None
        behaviour: Behaviour = handler.stream_unary
        method = details.method

        async def logged(messages: Any, context: Any) -> Any:
            start = self._monotonic()

            def write(status: Any) -> None:
                seconds = self._monotonic() - start
                self._access_log.write(GRPC, method, code_of(status), seconds, self._trace(), status in FAULTS)

            return await call_and_observe(behaviour, messages, context, write)

        return grpc.stream_unary_rpc_method_handler(logged)


async def call_and_observe(behaviour: Behaviour, messages: Any, context: Any, observe: Callable[[Any], None]) -> Any:
    """Call a handler, and pass the `grpc.StatusCode` of the call to `observe`."""
    try:
        answer = await behaviour(messages, context)
    except asyncio.CancelledError:
        observe(grpc.StatusCode.CANCELLED)  # the client has disconnected; the context has no status for it
        raise
    except BaseException:
        status = _status_in(context)
        observe(grpc.StatusCode.UNKNOWN if status is grpc.StatusCode.OK else status)  # gRPC responds with it
        raise
    observe(_status_in(context))
    return answer


def _status_in(context: Any) -> Any:
    """Return the status that the handler has set. Without one, gRPC has the number 0 instead of a status."""
    code = context.code() or 0
    return next(one for one in grpc.StatusCode if code in (one, code_of(one)))
