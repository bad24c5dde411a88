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
