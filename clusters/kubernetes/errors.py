"""Translate failures of kube-apiserver to the errors of `clusters.base.errors`. Pure.

Where the API's reason is ambiguous, the message decides. Each such message was observed on Kubernetes 1.35.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from clusters.base.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    FieldError,
    Forbidden,
    Gone,
    Invalid,
    NamespaceTerminating,
    NotFound,
    Unavailable,
    error_class,
)  # fmt: skip
from clusters.kubernetes.refusals import (
    field_errors,
    is_not_ready,
    is_webhook_down,
    is_wrong_request,
    webhook_message,
)
from clusters.kubernetes.status import ApiStatus, short_line

RETRY_TOO_MANY_REQUESTS = 1.0
"""s to wait after a 429 without Retry-After."""
_OWNER = re.compile(r'conflict with "([^"]*)"')
_PRECONDITION = re.compile(r"the (UID|ResourceVersion) in the precondition \(([^)]*)\).*in record \(([^)]*)\)")
_PLAIN_REFUSAL = "the server rejected our request due to an error in our request"


class PatchRefused(Invalid):
    """A JSON patch failed at an operation that the API server does not name; it may be a `test`."""


def translate(what: str, status: ApiStatus, retry_after: float | None = None) -> ClusterError:
    """Return the error for a Status. `what` names the object; `retry_after` (s) is the Retry-After header."""
    found = error_class(status.reason)
    if found is ClusterError and is_wrong_request(status.message):
        found = Invalid  # the API server sends it with code 500 and without a reason
    if found is ClusterError and is_webhook_down(status.message):
        found = Unavailable
    if found is ClusterError:
        found = error_class(code=status.code)
    is_unauthorized = status.reason == "Unauthorized" or (found is Forbidden and status.code == 401)
    translation = _unauthorized if is_unauthorized else _TRANSLATIONS.get(found, _other)
    return translation(what, status, retry_after or status.retry_after)


def _not_found(what: str, status: ApiStatus, _: float | None) -> ClusterError:
    if status.kind == "namespaces" and not what.startswith("namespaces "):
        return NotFound(f"{what}: namespace {status.name!r} not found: create it first")
    if status.name:
        return NotFound(f"{what} not found")
    return NotFound(f"{what}: the cluster does not serve this kind: install its CRD, or check version and subresource")


def _already_exists(what: str, status: ApiStatus, _: float | None) -> ClusterError:
    return AlreadyExists(f"{what} already exists")


def _conflict(what: str, status: ApiStatus, _: float | None) -> ClusterError:
    owned = sorted({
        (cause.field.removeprefix("."), _owner(cause.message))
        for cause in status.causes if cause.reason == "FieldManagerConflict"
    })  # fmt: skip
    if owned:
        owners = "; ".join(f"{field} is owned by {owner!r}" for field, owner in owned)
        fields = sorted({field for field, _ in owned})
        return Conflict(f"{what}: {owners}: leave the field out, or force", fields)
    if precondition := _PRECONDITION.search(status.message):
        field, asked, found = precondition.groups()
        name = "uid" if field == "UID" else "resourceVersion"
        return Conflict(f"{what}: the {name} is {found!r}, not {asked!r}: read it again")
    if "the object has been modified" in status.message:
        return Conflict(f"{what}: the object was changed meanwhile, its resourceVersion differs: read it again")
    return Conflict(f"{what}: {short_line(status.message)}")


def _invalid(what: str, status: ApiStatus, _: float | None) -> ClusterError:
    if status.message == _PLAIN_REFUSAL and not status.causes:
        return PatchRefused(what, [FieldError("", "the patch cannot be applied")])
    return Invalid(what, field_errors(status))


def _forbidden(what: str, status: ApiStatus, retry_after: float | None) -> ClusterError:
    if is_not_ready(status.message):
        return _unavailable(what, status, retry_after)
    if status.has_cause(NamespaceTerminating.cause):
        return NamespaceTerminating(f"{what}: its namespace is being deleted: wait until it is deleted")
    if webhook_message(status.message) is not None:
        return Invalid(what, field_errors(status))
    return Forbidden(f"{what}: {short_line(status.message)}")


def _unauthorized(what: str, status: ApiStatus, _: float | None) -> ClusterError:
    return Forbidden(f"{what}: the cluster does not accept these credentials (401): log in again")


def _gone(what: str, status: ApiStatus, _: float | None) -> ClusterError:
    return Gone(f"{what}: {short_line(status.message) or 'the resourceVersion is too old'}: list again")


def _unavailable(what: str, status: ApiStatus, retry_after: float | None) -> ClusterError:
    if status.has_cause("ResourceVersionTooLarge"):  # the cluster was reset, for example by a restored backup
        return _gone(what, status, None)
    if status.code == 429:
        retry_after = retry_after or RETRY_TOO_MANY_REQUESTS
    words = short_line(status.message) or "no reason given"
    return Unavailable(f"{what}: the cluster is unavailable ({status.code}: {words}): try again", retry_after)


def _other(what: str, status: ApiStatus, retry_after: float | None) -> ClusterError:
    words = short_line(status.message) or "no reason given"
    if retry_after is not None:
        return _unavailable(what, status, retry_after)
    return ClusterError(f"{what}: the cluster failed ({status.code}: {words})")


def _owner(message: str) -> str:
    found = _OWNER.search(message)
    return found.group(1) if found else "another manager"


_TRANSLATIONS: Mapping[type[ClusterError], Callable[[str, ApiStatus, float | None], ClusterError]] = {
    NotFound: _not_found,
    AlreadyExists: _already_exists,
    Conflict: _conflict,
    Invalid: _invalid,
    Forbidden: _forbidden,
    Gone: _gone,
    Unavailable: _unavailable,
}
