"""Errors as Kubernetes `Status` objects: one translation for every answer of the control API."""

from __future__ import annotations

from clusters.base.errors import ClusterError, Conflict, FieldError, Invalid, KnodelError, Unavailable
from clusters.base.objects import Object


class BadRequest(ClusterError):
    """The request itself cannot be understood (400)."""

    code = 400
    reason = "BadRequest"


class MethodNotAllowed(ClusterError):
    """The resource is there, but not for this method (405)."""

    code = 405
    reason = "MethodNotAllowed"


class UnsupportedMediaType(ClusterError):
    """The body's Content-Type is none that this method takes (415)."""

    code = 415
    reason = "UnsupportedMediaType"


class TooLarge(ClusterError):
    """The body is above the limit (413)."""

    code = 413
    reason = "RequestEntityTooLarge"


class TooManyRequests(Unavailable):
    """Other requests have what this one needs (429)."""

    code = 429
    reason = "TooManyRequests"


def status_of(error: KnodelError) -> Object:
    """The `Status` of an error; anything that is no `ClusterError` is an internal error without detail."""
    if not isinstance(error, ClusterError):
        return failure(500, "InternalError", "internal error: see the log of the platform")
    status = failure(error.code, error.reason, str(error))
    details: Object = {}
    if isinstance(error, Invalid):
        details["causes"] = [_cause(cause) for cause in error.causes]
    if isinstance(error, Conflict) and error.fields:
        details["causes"] = [{"reason": "FieldManagerConflict", "field": path} for path in error.fields]
    if isinstance(error, Unavailable) and error.retry_after is not None:
        details["retryAfterSeconds"] = int(error.retry_after) + 1
    if details:
        status["details"] = details
    return status


def failure(code: int, reason: str, message: str) -> Object:
    """A `Status` of kind Failure."""
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
    """What a completed deletion answers."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 200}


def _cause(cause: FieldError) -> Object:
    return {"reason": "FieldValueInvalid", "field": cause.path, "message": cause.message}
