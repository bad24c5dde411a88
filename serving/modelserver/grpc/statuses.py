"""Map the server's errors to gRPC status codes and trailing metadata. Pure."""

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
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,  # as gRPC itself reports a message that is too large
    415: grpc.StatusCode.UNIMPLEMENTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    499: grpc.StatusCode.CANCELLED,
    500: grpc.StatusCode.INTERNAL,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""gRPC status by the error's HTTP status; any other HTTP status maps to INTERNAL."""
FAULTS: Final = frozenset(
    {
        grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DATA_LOSS,
    }
)  # fmt: skip
"""Statuses that count as server errors (OpenTelemetry's conventions for gRPC)."""
REVISION: Final = headers.REVISION.decode()
PUSHBACK: Final = "grpc-retry-pushback-ms"
"""gRPC's equivalent of `Retry-After` (proposal A6, "Client-side retry"): how long clients wait before a retry."""
_MS: Final = 1000


def status_of(error: ServingError) -> Any:
    """Return the `grpc.StatusCode` of the error."""
    return STATUSES.get(error.status, grpc.StatusCode.INTERNAL)


def code_of(status: Any) -> int:
    """Return the number of a status, as in gRPC's documents and on the wire."""
    return int(status.value[0])


def metadata_of(error: ServingError) -> Metadata:
    """Return the metadata with the retry delay of the error; none when it has no delay."""
    return () if error.retry_after is None else ((PUSHBACK, str(error.retry_after * _MS)),)
