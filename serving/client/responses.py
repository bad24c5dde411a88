"""Check the shape of an API server's response, and turn a `Status` object into an error of the command.

The error class comes from `clusters.base.errors.error_class`, as in `clusters.kubernetes`. The command adds the cases
that need another exit code or remedy.
"""

from __future__ import annotations

import json
import re

from clusters.base.errors import (
    ClusterError,
    FieldError,
    Forbidden,
    Invalid,
    KnodelError,
    NamespaceTerminating,
    NotFound,
    error_class,
)
from clusters.base.objects import Object
from serving.client.effects import OK_BELOW, HttpAnswer
from serving.client.errors import ClientError, UsageError
from serving.client.http import FOREIGN
from serving.client.server import Server

BAD_REQUESTS = (400, 405, 413, 415)
UNAUTHORIZED, NOT_FOUND = 401, 404
ADMISSION = re.compile(r"denied (the )?request")
"""In the message of a refusal by a webhook or a ValidatingAdmissionPolicy (apiserver, plugin/webhook and policy)."""
NO_SUCH_PATH = ("404 page not found", "the server could not find the requested resource")
"""Messages of kube-apiserver for a resource that it does not serve, whatever the name (apiserver, handler chain)."""


def parse(content: bytes, server: Server) -> Object:
    """Parse a JSON object. Raises ClientError."""
    what = f"the response of {server.endpoint.what}"
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ClientError(f"{what} is not JSON: {FOREIGN}") from error
    if not isinstance(value, dict):
        raise ClientError(f"{what} is not a JSON object: {FOREIGN}")
    return value


def is_object(value: object) -> bool:
    """Return whether the value is a Kubernetes object with a name."""
    metadata = value.get("metadata") if isinstance(value, dict) else None
    return isinstance(metadata, dict) and isinstance(metadata.get("name"), str)


def is_list(value: object) -> bool:
    """Return whether the value is a List of objects."""
    items = value.get("items") if isinstance(value, dict) else None
    return isinstance(items, list) and all(map(is_object, items))


def raise_failure(response: HttpAnswer, server: Server, path: str) -> None:
    """Raise the error of a response with a status of 300 or more."""
    if response.status < OK_BELOW:
        return
    content = response.content
    text = content[:1000].decode("utf-8", "replace")
    if response.status == NOT_FOUND and any(words in text for words in NO_SUCH_PATH):
        raise ClientError(server.missing_message(resource_of(path)))
    try:
        status = parse(content, server)
    except ClientError:
        status = {}
    if status.get("kind") != "Status" or not isinstance(status.get("message"), str):
        what = f"{server.endpoint.what} responded with HTTP {response.status} {response.phrase}"
        raise ClientError(f"{what} without a Kubernetes Status: {FOREIGN}")
    error = error_of({**status, "code": response.status}, server)
    if isinstance(error, ClusterError | ClientError):
        error.status = response.status
    raise error


def error_of(status: Object, server: Server) -> KnodelError:
    """Return the error of a `Status` object.

    A refused request is a UsageError (exit code 2), with the message of the API server.
    """
    message, reason, code = str(status.get("message", "")), str(status.get("reason", "")), status.get("code")
    found, causes = error_class(reason, code if isinstance(code, int) else 0), _causes(status)
    if reason == Invalid.reason and causes:
        faults = [FieldError(str(cause.get("field", "")), str(cause.get("message", ""))) for cause in causes]
        return Invalid(message.partition(":")[0], faults)
    if found is Invalid or code in BAD_REQUESTS or ADMISSION.search(message):
        return UsageError(message)
    if code == UNAUTHORIZED:
        return ClientError(server.unauthorized_message(message))
    if any(cause.get("reason") == NamespaceTerminating.cause for cause in causes):
        if found is NotFound:  # the control API
            return NamespaceTerminating(message)
        return ClientError(f"{message}: wait until it is deleted")
    if found is Forbidden:
        return Forbidden(server.forbidden_message(message))
    return ClientError(message) if found is ClusterError else found(message)


def resource_of(path: str) -> str:
    """Return the resource of a path, such as `models.knodel.dev`; empty for a path without one."""
    words = path.partition("?")[0].strip("/").split("/")
    group, rest = (words[1], words[3:]) if words[0] == "apis" and len(words) > 3 else ("", words[2:])
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    return ".".join(word for word in (*rest[:1], group) if word)


def _causes(status: Object) -> list[Object]:
    """Return the causes in the details of a `Status`, from a server that may send anything."""
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return [cause for cause in (causes if isinstance(causes, list) else ()) if isinstance(cause, dict)]
