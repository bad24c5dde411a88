"""Extract fields and messages from refusals: validation, CRD rules, policies, webhooks, unknown fields. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from clusters.base.errors import FieldError
from clusters.kubernetes.status import ApiStatus, short_line

_WEBHOOK = re.compile(r'^admission webhook "[^"]*" denied the request(?: without explanation|: (?P<words>.*))$', re.S)
_POLICY = re.compile(r"ValidatingAdmissionPolicy '[^']*' with binding '[^']*' denied request: (?P<words>.*)$", re.S)
_WEBHOOK_DOWN = re.compile(r"failed calling webhook|etcdserver: |etcd leader changed|context deadline exceeded")
_NO_RIGHT = re.compile(r'is forbidden: User "[^"]*" cannot ')
_NOT_READY = "not yet ready to handle request"
_STRICT = re.compile(r"strict decoding error: (?P<words>.*)$", re.S)
_STRICT_FIELD = re.compile(r'(?P<message>unknown field|duplicate field) "(?P<path>[^"]+)"')
_TYPED = re.compile(r"failed to create typed patch object \(.*?\): (?P<words>.*)$", re.S)
_TYPED_FIELD = re.compile(r"^\s*\.?(?P<path>\S+): (?P<message>.+)$")
_VERSION_AT_CREATE = "resourceVersion should not be set on objects to be created"
_NAMELESS_VALUE = re.compile(r'^Invalid value: "?(?:object|array)"?: ')
_KNATIVE_PREFIX = re.compile(r"^(?:validation|mutation) failed: ")
_KNATIVE_FIELDS = re.compile(r"^(?P<message>.+?): (?P<paths>(?:spec|metadata|status)[^\s,]*(?:, [^\s,]+)*)$")


def field_errors(status: ApiStatus) -> list[FieldError]:
    """Return the refused fields with their messages; at least one entry."""
    if (words := webhook_message(status.message)) is not None:
        found = list(_of_webhook(words))
    elif policy := _POLICY.search(status.message):
        found = [FieldError("", short_line(policy["words"]))]
    elif status.causes:
        found = [
            FieldError(
                "" if cause.field == "<nil>" else cause.field.removeprefix("."),
                short_line(_NAMELESS_VALUE.sub("", cause.message)),
            )
            for cause in status.causes
        ]
    else:
        found = list(_of_message(status.message))
    return list(dict.fromkeys(found)) or [FieldError("", short_line(status.message) or "refused without a reason")]


def webhook_message(message: str) -> str | None:
    """Return the message of the admission webhook that denied the request; None without one."""
    denied = _WEBHOOK.match(message)
    return None if denied is None else denied["words"] or "without explanation"


def is_webhook_down(message: str) -> bool:
    """Return whether something behind the API server failed, so that a retry may succeed."""
    return _WEBHOOK_DOWN.search(message) is not None


def is_denied_by_authorizer(message: str) -> bool:
    """Return whether the authorizer refused the request."""
    return _NO_RIGHT.search(message) is not None


def is_not_ready(message: str) -> bool:
    """Return whether an admission plugin refused the request because the API server has just started."""
    return message.endswith(_NOT_READY)


def is_wrong_request(message: str) -> bool:
    """Return whether a failure with code 500 is a refusal of the request."""
    return _TYPED.search(message) is not None or message == _VERSION_AT_CREATE


def _of_webhook(words: str) -> Iterator[FieldError]:
    for line in _KNATIVE_PREFIX.sub("", words).splitlines():
        fields = _KNATIVE_FIELDS.match(line)
        if fields:
            for path in fields["paths"].split(", "):
                yield FieldError(path, short_line(fields["message"]))
        elif line.strip():
            yield FieldError("", short_line(line))


def _of_message(message: str) -> Iterator[FieldError]:
    if message == _VERSION_AT_CREATE:
        yield FieldError("metadata.resourceVersion", "it must not be set on an object to be created")
    elif strict := _STRICT.search(message):
        for field in _STRICT_FIELD.finditer(strict["words"]):
            yield FieldError(field["path"], field["message"])
    elif typed := _TYPED.search(message):
        for line in typed["words"].removeprefix("errors:").splitlines():
            if named := _TYPED_FIELD.match(line):
                yield FieldError(named["path"], short_line(named["message"]))
