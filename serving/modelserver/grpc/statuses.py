"""What a caller over gRPC is told for each error: the code, the message, and what comes beside. Pure."""

from __future__ import annotations

from typing import Any, Final

from serving.modelserver.base import headers
from serving.modelserver.base.errors import ServingError
from serving.modelserver.grpc.library import grpc

Metadata = tuple[tuple[str, str], ...]

STATUSES: Final[dict[int, Any]] = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,  # as gRPC itself says of a message that is too large
    415: grpc.StatusCode.UNIMPLEMENTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    499: grpc.StatusCode.CANCELLED,
    500: grpc.StatusCode.INTERNAL,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""By the error's status over HTTP; another one is INTERNAL."""
FAULTS: Final = frozenset(
    {
        grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DATA_LOSS,
    }
)  # fmt: skip
"""The server's fault (OpenTelemetry's conventions for gRPC)."""
REVISION: Final = headers.REVISION.decode()
PUSHBACK: Final = "grpc-retry-pushback-ms"
"""`Retry-After` of gRPC (proposal A6, "Client-side retry"): clients that retry wait so long."""
_MS: Final = 1000


def status_of(error: ServingError) -> Any:
    """Its `grpc.StatusCode`."""
    return STATUSES.get(error.status, grpc.StatusCode.INTERNAL)


def code_of(status: Any) -> int:
    """A status as a number, as gRPC has them in its documents and on the wire."""
    return int(status.value[0])


def metadata_of(error: ServingError) -> Metadata:
    """What a caller that tries again wants to know."""
    return () if error.retry_after is None else ((PUSHBACK, str(error.retry_after * _MS)),)
