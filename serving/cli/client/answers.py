"""Answers of an API server, ours or a real one: checked for their shape, and errors made those of the command.

The only place where a `Status` object becomes an exception.
"""

from __future__ import annotations

import json
import re
from typing import Any

from clusters.base.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    FieldError,
    Forbidden,
    Gone,
    Invalid,
    KnodelError,
    NotFound,
    Unavailable,
)
from clusters.base.objects import Object
from serving.cli.base.errors import CommandError, UsageError
from serving.cli.client.http import FOREIGN, Answer
from serving.cli.client.server import Server

OK_BELOW = 300  # status codes; a redirect is no answer of an API
BAD_REQUESTS = (400, 405, 413, 415)
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, TOO_MANY = 401, 403, 404, 429
ADMISSION = re.compile(r"denied (the )?request")
"""In the message of what a webhook or a ValidatingAdmissionPolicy refused (apiserver, plugin/webhook and policy)."""
TERMINATING = "because it is being terminated"
"""In the message of a create in a namespace that is being deleted: 403 too (apiserver, NamespaceLifecycle)."""
NO_SUCH_PATH = ("404 page not found", "the server could not find the requested resource")
"""What kube-apiserver says when it does not know the resource, whatever the name (apiserver, handler chain)."""


def parse(content: bytes, server: Server) -> Object:
    """A JSON object. Raises CommandError."""
    what = server.endpoint.what
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{what}'s answer is no JSON: {FOREIGN}") from error
    if not isinstance(value, dict):
        raise CommandError(f"{what}'s answer is no object: {FOREIGN}")
    return value


def is_object(value: object) -> bool:
    """Whether it is a Kubernetes object with a name."""
    metadata = value.get("metadata") if isinstance(value, dict) else None
    return isinstance(metadata, dict) and isinstance(metadata.get("name"), str)


def is_list(value: object) -> bool:
    """Whether it is a List of objects."""
    items = value.get("items") if isinstance(value, dict) else None
    return isinstance(items, list) and all(map(is_object, items))


def raise_failure(answer: Answer, server: Server, path: str) -> None:
    """Raises the error that an answer stands for; none for a good one."""
    if answer.status < OK_BELOW:
        return
    content = answer.body()
    if answer.status == NOT_FOUND and _is_no_path(content):
        raise CommandError(server.lacks(resource_of(path)))
    try:
        status = parse(content, server)
    except CommandError:
        status = {}
    if status.get("kind") != "Status" or not isinstance(status.get("message"), str):
        what = f"{server.endpoint.what} answered HTTP {answer.status} {answer.phrase}"
        raise CommandError(f"{what}, and not as Kubernetes does: {FOREIGN}")
    raise error_of({**status, "code": answer.status}, server)


def error_of(status: Object, server: Server) -> KnodelError:
    """The error that a `Status` object stands for."""
    message, reason, code = str(status.get("message", "")), status.get("reason", ""), status.get("code")
    if reason == "Invalid":
        fields = _causes(status)
        return Invalid(message.partition(":")[0], fields) if fields else UsageError(message)
    if ADMISSION.search(message):
        return UsageError(message)
    if reason == "Conflict":
        return Conflict(message)
    if reason == "AlreadyExists":
        return AlreadyExists(message)
    if code in BAD_REQUESTS:
        return UsageError(message)
    if code == UNAUTHORIZED:
        return CommandError(server.unauthorized(message))
    if code == FORBIDDEN and TERMINATING in message:
        return CommandError(f"{message}: wait until it is gone")
    if code == FORBIDDEN:
        return Forbidden(server.forbidden(message))
    known: dict[Any, type[ClusterError]] = {NOT_FOUND: NotFound, 410: Gone, TOO_MANY: Unavailable, 503: Unavailable}
    return known.get(code, CommandError)(message)


def resource_of(path: str) -> str:
    """The resource that a path is about, as `models.knodel.dev`; empty when there is none."""
    words = path.partition("?")[0].strip("/").split("/")
    group, rest = (words[1], words[3:]) if words[0] == "apis" and len(words) > 3 else ("", words[2:])
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    return ".".join(word for word in (*rest[:1], group) if word)


def _is_no_path(content: bytes) -> bool:
    text = content[:1000].decode("utf-8", "replace")
    return any(words in text for words in NO_SUCH_PATH)


def _causes(status: Object) -> list[FieldError]:
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return [
        FieldError(str(cause.get("field", "")), str(cause.get("message", "")))
        for cause in (causes if isinstance(causes, list) else ())
        if isinstance(cause, dict)
    ]
