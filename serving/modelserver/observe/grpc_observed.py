"""How calls over gRPC end, and their lines in the access log; used only where somebody wants to know."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from serving.modelserver.grpc.library import grpc
from serving.modelserver.grpc.statuses import FAULTS, code_of
from serving.modelserver.observe.access_log import GRPC, AccessLog

Behaviour = Callable[[Any, Any], Awaitable[Any]]
"""A handler of messages and context."""


class AccessLogInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """A line for each call of a method that there is; `trace` gives the id of the trace that it is in, "" for none."""

    def __init__(self, access_log: AccessLog, trace: Callable[[], str], monotonic: Callable[[], float]) -> None:
        self._access_log = access_log
        self._trace = trace
        self._monotonic = monotonic

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """The method's handler, logged."""
        handler = await continuation(details)
        if handler is None:
            return None
        return grpc.stream_unary_rpc_method_handler(self._logged(handler.stream_unary, details.method))

    def _logged(self, behaviour: Behaviour, method: str) -> Behaviour:
        async def logged(messages: Any, context: Any) -> Any:
            start = self._monotonic()

            def write(status: Any) -> None:
                seconds = self._monotonic() - start
                self._access_log.write(GRPC, method, code_of(status), seconds, self._trace(), status in FAULTS)

            return await told(behaviour, messages, context, write)

        return logged


async def told(behaviour: Behaviour, messages: Any, context: Any, tell: Callable[[Any], None]) -> Any:
    """Call a handler, and `tell` the `grpc.StatusCode` that it ended with."""
    try:
        answer = await behaviour(messages, context)
    except asyncio.CancelledError:
        tell(grpc.StatusCode.CANCELLED)  # the caller left, which the context does not know
        raise
    except BaseException:
        status = _status_in(context)
        tell(grpc.StatusCode.UNKNOWN if status is grpc.StatusCode.OK else status)  # as gRPC answers it
        raise
    tell(_status_in(context))
    return answer


def _status_in(context: Any) -> Any:
    """What the handler has said; gRPC has 0, and no status, where it said nothing."""
    code = context.code() or 0
    return next(one for one in grpc.StatusCode if code in (one, code_of(one)))
