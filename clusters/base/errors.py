"""The exceptions of Knodel, and those that a cluster raises.

    KnodelError                       base of all errors that Knodel reports
    ├── ClusterError                  an error response of a cluster (status code of the Kubernetes API in brackets)
    │   ├── NotFound        (404)     no such object, or no such kind
    │   ├── AlreadyExists   (409)     create with a name that is taken
    │   ├── Conflict        (409)     stale resourceVersion, failed `test`, or a field owned by another manager
    │   ├── Invalid         (422)     refused by validation; `causes` name every field
    │   ├── Forbidden       (403)     the caller lacks the permission
    │   ├── Gone            (410)     the resourceVersion is older than the watch history: list again
    │   └── Unavailable     (503)     no response now; retry after `retry_after` seconds, where the cluster gives them
    ├── AddressInUse                  a part of the platform cannot listen on its address
    ├── TemporaryError                a reconcile pass failed; retry after `delay` seconds
    └── PermanentError                a reconcile pass failed; retry when the object changes

Other packages add branches below `KnodelError` (settings, storage, model server, command line).
A message names the thing, the value and the remedy, on one line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple


class KnodelError(Exception):
    """Base of all errors that Knodel raises on purpose. `str(error)` is one readable line."""


class FieldError(NamedTuple):  # defining it takes a seventh of a dataclass's time, at each start of the command
    """A refused field: `path` as in `spec.traffic[0].percent`, `message` with the fault and the allowed values."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def shown_name(name: str) -> str:
    """Return a field name from a request for use in a path: short, on one line, with control characters escaped."""
    return repr(name[:40])[1:-1]


class ClusterError(KnodelError):
    """An error response of a cluster. `code` and `reason` are those of a Kubernetes `Status`."""

    code = 500
    reason = "InternalError"
    status: int | None = None
    """The HTTP status of the response, None without one."""


class NotFound(ClusterError):
    """The object or its kind does not exist."""

    code = 404
    reason = "NotFound"


class NamespaceTerminating(NotFound):
    """The namespace of a new object is being deleted."""

    cause = "NamespaceTerminating"
    """The cause in the details of a Kubernetes `Status` (apiserver, NamespaceLifecycle)."""


class AlreadyExists(ClusterError):
    """The name is taken."""

    code = 409
    reason = "AlreadyExists"


class Conflict(ClusterError):
    """A precondition failed. `fields` are the paths of fields that other managers own, when that is the cause."""

    code = 409
    reason = "Conflict"

    def __init__(self, message: str, fields: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.fields = tuple(fields)


class Invalid(ClusterError):
    """Validation refused the request and nothing was changed. `causes` names every refused field."""

    code = 422
    reason = "Invalid"

    def __init__(self, what: str, causes: Sequence[FieldError]) -> None:
        super().__init__(f"{what}: " + "; ".join(str(cause) for cause in causes))
        self.what = what
        self.causes = tuple(causes)


class Forbidden(ClusterError):
    """The caller lacks the permission."""

    code = 403
    reason = "Forbidden"


class Gone(ClusterError):
    """The requested resourceVersion is no longer in the watch history: list again and watch from there."""

    code = 410
    reason = "Expired"


class Unavailable(ClusterError):
    """The cluster did not respond, or responded that it cannot now. `retry_after` is in seconds."""

    code = 503
    reason = "ServiceUnavailable"

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


_STATUS_ERRORS: Final[tuple[tuple[type[ClusterError], tuple[str, ...], tuple[int, ...]], ...]] = (
    (NotFound, ("NotFound",), (404, 405)),
    (AlreadyExists, ("AlreadyExists",), ()),
    (Conflict, ("Conflict",), (409,)),
    (Invalid, ("Invalid", "BadRequest", "RequestEntityTooLarge", "UnsupportedMediaType"), (400, 413, 415, 422)),
    (Forbidden, ("Forbidden", "Unauthorized"), (401, 403)),
    (Gone, ("Gone", "Expired"), (410,)),
    (Unavailable, ("ServiceUnavailable", "TooManyRequests", "ServerTimeout", "Timeout"), (429, 502, 503, 504)),
)
"""Error class, with the reasons and codes of a Kubernetes `Status` that mean it."""


def error_class(reason: str = "", code: int = 0) -> type[ClusterError]:
    """Return the class for the reason of a Kubernetes `Status`, else for its code, else ClusterError. Pure."""
    by_reason = (error for error, reasons, _ in _STATUS_ERRORS if reason in reasons)
    by_code = (error for error, _, codes in _STATUS_ERRORS if code in codes)
    return next(by_reason, None) or next(by_code, ClusterError)


class AddressInUse(KnodelError):
    """The platform cannot listen on an address. `remedy` is the last part of the message, `problem` the rest."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}: {remedy}")
        self.problem = problem
        self.remedy = remedy


class TemporaryError(KnodelError):
    """Raised by a reconcile pass: retry the key after `delay` seconds, or after the queue's back-off (None)."""

    def __init__(self, message: str, delay: float | None = None) -> None:
        super().__init__(message)
        self.delay = delay


class PermanentError(KnodelError):
    """Raised by a reconcile pass: it fails until the object changes."""
