"""Translate errors to Kubernetes `Status` objects."""

from __future__ import annotations

from clusters.base.errors import (
    ClusterError,
    Conflict,
    Invalid,
    KnodelError,
    NamespaceTerminating,
    Unavailable,
)
from clusters.base.objects import Object


class MalformedRequest(ClusterError):
    """The request is malformed (400)."""

    code = 400
    reason = "BadRequest"


class MethodNotAllowed(ClusterError):
    """The resource does not support the method (405)."""

    code = 405
    reason = "MethodNotAllowed"


class UnsupportedMediaType(ClusterError):
    """The method does not support the body's Content-Type (415)."""

    code = 415
    reason = "UnsupportedMediaType"


class BodyTooLarge(ClusterError):
    """The body is above the limit (413)."""

    code = 413
    reason = "RequestEntityTooLarge"


class TooManyRequests(Unavailable):
    """Other requests use the resources that this one needs (429)."""

    code = 429
    reason = "TooManyRequests"


def status_of(error: KnodelError) -> Object:
    """Return the `Status` of an error. Errors other than `ClusterError` become an internal error without details."""
    if not isinstance(error, ClusterError):
        return failure(500, "InternalError", "internal error: see the log of the platform")
    status = failure(error.code, error.reason, str(error))
    details: Object = {}
    if isinstance(error, Invalid):
        details["causes"] = [
            {"reason": "FieldValueInvalid", "field": cause.path, "message": cause.message} for cause in error.causes
        ]
    if isinstance(error, Conflict) and error.fields:
        details["causes"] = [{"reason": "FieldManagerConflict", "field": path} for path in error.fields]
    if isinstance(error, NamespaceTerminating):
        details["causes"] = [{"reason": error.cause, "field": "metadata.namespace"}]
    if isinstance(error, Unavailable) and error.retry_after is not None:
        details["retryAfterSeconds"] = int(error.retry_after) + 1
    if details:
        status["details"] = details
    return status


def failure(code: int, reason: str, message: str) -> Object:
    """Return a `Status` with status Failure."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


def success() -> Object:
    """Return the `Status` of a completed deletion."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 200}
