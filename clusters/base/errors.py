"""The one exception tree of Knodel, and the part of it that a cluster raises.

    KnodelError                       anything that Knodel itself reports to a person
    ├── ClusterError                  an answer of a cluster (status code of the Kubernetes API in brackets)
    │   ├── NotFound        (404)     no such object, or no such kind
    │   ├── AlreadyExists   (409)     create of a name that is taken
    │   ├── Conflict        (409)     stale resourceVersion, failed `test`, or a field owned by another manager
    │   ├── Invalid         (422)     refused by validation; `causes` name every field
    │   ├── Forbidden       (403)     this caller may not
    │   ├── Gone            (410)     the resourceVersion is older than the watch history: list again
    │   └── Unavailable     (503)     no answer now; `retry_after` seconds when the cluster says so
    ├── AddressInUse                  an address at which a part of the platform is to listen cannot be used
    ├── TemporaryError                a reconcile pass that wants to be tried again after `delay` seconds
    └── PermanentError                a reconcile pass that only a changed object can help

Other packages add branches below `KnodelError` (settings, storage, model server, command line).
A message names the thing, the value and the remedy, on one line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class KnodelError(Exception):
    """Base of all errors that Knodel raises on purpose; `str(error)` is one line for people."""


class FieldError(NamedTuple):  # made in a seventh of the time that a dataclass takes, at each start of the command
    """One refused field: `path` as in `spec.traffic[0].percent`, `message` says what is wrong and what is allowed."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def shown_name(name: str) -> str:
    """A field's name as a caller wrote it, for a path: short, on one line, nothing in it that a terminal would obey."""
    return repr(name[:40])[1:-1]


class ClusterError(KnodelError):
    """An answer of a cluster that is not the wished one.

    `code` and `reason` are those of a Kubernetes `Status`.
    """

    code = 500
    reason = "InternalError"


class NotFound(ClusterError):
    """No object of that name."""

    code = 404
    reason = "NotFound"


class AlreadyExists(ClusterError):
    """The name is taken."""

    code = 409
    reason = "AlreadyExists"


class Conflict(ClusterError):
    """A precondition failed; `fields` are the field paths owned by other managers, when that is the cause."""

    code = 409
    reason = "Conflict"

    def __init__(self, message: str, fields: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.fields = tuple(fields)


class Invalid(ClusterError):
    """Refused by validation: nothing was changed. `causes` names every refused field."""

    code = 422
    reason = "Invalid"

    def __init__(self, what: str, causes: Sequence[FieldError]) -> None:
        super().__init__(f"{what}: " + "; ".join(str(cause) for cause in causes))
        self.what = what
        self.causes = tuple(causes)


class Forbidden(ClusterError):
    """The caller may not do this."""

    code = 403
    reason = "Forbidden"


class Gone(ClusterError):
    """The asked resourceVersion is no longer in the watch history: list again and watch from there."""

    code = 410
    reason = "Expired"


class Unavailable(ClusterError):
    """The cluster did not answer, or says that it cannot now."""

    code = 503
    reason = "ServiceUnavailable"

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class AddressInUse(KnodelError):
    """An address at which the platform is to listen cannot be used."""


class TemporaryError(KnodelError):
    """Raised by a reconcile pass: try this key again after `delay` seconds (None: the queue's back-off)."""

    def __init__(self, message: str, delay: float | None = None) -> None:
        super().__init__(message)
        self.delay = delay


class PermanentError(KnodelError):
    """Raised by a reconcile pass: nothing helps before the object changes."""
