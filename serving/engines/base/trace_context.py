"""The trace context that requests to an engine outside of this process carry (W3C Trace Context).

The tracing of the server sets it around the work of a traced request; without tracing it is empty, and the caller's own
headers are passed on unchanged.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

TRACEPARENT: Final[ContextVar[str]] = ContextVar("traceparent", default="")
"""The `traceparent` of the current span, empty without one."""
HEADER: Final = b"traceparent"
"""Name of the header with it."""
_TRACE, _SPAN, _FLAGS = slice(3, 35), slice(36, 52), slice(53, 55)
_SAMPLED: Final = 1  # bit of the flags


def sampled_ids(traceparent: str) -> tuple[str, str] | None:
    """Return the trace and the span of a valid `traceparent` if they are sent to a collector, else None."""
    if not traceparent or not int(traceparent[_FLAGS], 16) & _SAMPLED:
        return None
    return traceparent[_TRACE], traceparent[_SPAN]
