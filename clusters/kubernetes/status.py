"""The `Status` object of a failure in the Kubernetes API, parsed leniently because proxies send other bodies. Pure.

Source: `meta/v1` `types.go`, https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from clusters.base.redact import one_line

LONGEST_TEXT = 2000
"""Maximum characters of a message: enough for every message of Kubernetes, too few for a web page."""


@dataclass(frozen=True, slots=True)
class StatusCause:
    """A cause of a failure: a field and its fault."""

    reason: str
    field: str
    message: str


@dataclass(frozen=True, slots=True)
class ApiStatus:
    """A failure: HTTP status `code`, Kubernetes `reason` or an empty text, and `name` and `kind` of the object."""

    code: int
    reason: str
    message: str
    causes: tuple[StatusCause, ...] = ()
    name: str = ""
    kind: str = ""
    retry_after: float | None = None

    def has_cause(self, reason: str) -> bool:
        """Return whether a cause has that reason."""
        return any(cause.reason == reason for cause in self.causes)


def read_status(code: int, body: bytes) -> ApiStatus:
    """Return the Status in a response; a body of another type becomes its message."""
    try:
        value = msgspec.json.decode(body)
    except msgspec.MsgspecError:
        return ApiStatus(code, "", short_line(body.decode(errors="replace")))
    return status_of(value, code) if isinstance(value, dict) else ApiStatus(code, "", short_line(str(value)))


def status_of(value: dict[str, Any], code: int = 500) -> ApiStatus:
    """Return the Status in a decoded object; `code` replaces an absent one."""
    details = value.get("details")
    details = details if isinstance(details, dict) else {}
    causes = details.get("causes")
    seconds = details.get("retryAfterSeconds")
    own = value.get("code")
    return ApiStatus(
        code=own if isinstance(own, int) and own >= 400 else code,
        reason=_text(value, "reason"),
        message=str(value.get("message") or "")[:LONGEST_TEXT],
        causes=tuple(
            StatusCause(_text(cause, "reason"), _text(cause, "field"), _text(cause, "message"))
            for cause in (causes if isinstance(causes, list) else ())
            if isinstance(cause, dict)
        ),
        name=_text(details, "name"),
        kind=_text(details, "kind"),
        retry_after=float(seconds) if isinstance(seconds, int) and seconds > 0 else None,
    )


def short_line(text: str) -> str:
    """Return the text on one line, cut after `LONGEST_TEXT` characters."""
    return one_line(text[: 2 * LONGEST_TEXT], LONGEST_TEXT)


def _text(value: dict[str, Any], field: str) -> str:
    return str(value.get(field) or "")
