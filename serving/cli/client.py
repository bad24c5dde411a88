"""One thin REST client of the control API, over the standard library: a command must not pay for a large import."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

from clusters.errors import (
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
from clusters.objects import Kind, Object
from serving.cli.errors import CommandError, UsageError
from serving.cli.state import Platform

TIMEOUT = 30.0  # s without a byte from the platform
LONGEST_ANSWER = 64 * 1024 * 1024  # bytes; an endless body must not fill memory
MANAGER = "knodel-cli"
MERGE = "application/merge-patch+json"


class Client:
    """Kubernetes' grammar to one platform."""

    def __init__(self, platform: Platform, timeout: float = TIMEOUT) -> None:
        self._platform = platform
        self._timeout = timeout

    def get(self, kind: Kind, name: str, namespace: str) -> Object:
        """One object. Raises NotFound."""
        return self._call("GET", _path(kind, namespace, name))

    def list(self, kind: Kind, namespace: str | None, selector: str = "") -> Object:
        """A List object; `namespace` None means all."""
        query = {"labelSelector": selector} if selector else {}
        return self._call("GET", _path(kind, namespace), query)

    def merge(self, kind: Kind, name: str, namespace: str, patch: Mapping[str, Any], dry_run: bool = False) -> Object:
        """JSON merge patch."""
        query = {"fieldManager": MANAGER} | _dry(dry_run)
        return self._call("PATCH", _path(kind, namespace, name), query, patch, MERGE)

    def create(self, kind: Kind, obj: Object, namespace: str, *, dry_run: bool = False) -> Object:
        """Create. Raises AlreadyExists."""
        return self._call("POST", _path(kind, namespace), {"fieldManager": MANAGER} | _dry(dry_run), obj)

    def delete(self, kind: Kind, name: str, namespace: str) -> None:
        """Delete. Raises NotFound."""
        self._call("DELETE", _path(kind, namespace, name))

    def watch(
        self, kind: Kind, namespace: str, name: str, version: str, timeout: float
    ) -> Iterator[tuple[str, Object]]:
        """(type, object) of one object's changes; ends after `timeout` seconds at the latest. Raises Gone."""
        query = {
            "watch": "1",
            "resourceVersion": version,
            "fieldSelector": f"metadata.name={name}",
            "timeoutSeconds": str(max(1, int(timeout))),
        }
        with self._request("GET", _path(kind, namespace), query, None, "") as answer:
            for line in _translated(answer):
                event = _parse(line)
                if event["type"] == "ERROR":
                    raise _error(event["object"])
                yield event["type"], event["object"]

    def stream(self, path: str, query: Mapping[str, str]) -> Iterator[bytes]:
        """The lines of a streamed answer, such as a log."""
        with self._request("GET", path, query, None, "") as answer:
            yield from _translated(answer)

    def log_path(self, namespace: str, pod: str) -> str:
        """Where a Pod's log is."""
        return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/log"

    def _call(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: Any = None, type: str = ""
    ) -> Object:
        with self._request(method, path, query or {}, body, type or "application/json") as answer:
            return _parse(_bounded(answer))

    @contextmanager
    def _request(
        self, method: str, path: str, query: Mapping[str, str], body: Any, type: str
    ) -> Iterator[http.client.HTTPResponse]:
        host, port = self._platform.control
        connection = http.client.HTTPConnection(host, port, timeout=self._timeout)
        headers = {"Authorization": f"Bearer {self._platform.token}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = type
        target = path + (f"?{urlencode(query)}" if query else "")
        try:
            connection.request(method, target, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            if answer.status >= 400:
                raise _error(_parse_failure(answer))
            yield answer
        except (OSError, http.client.HTTPException) as error:
            raise CommandError(
                f"the platform at {host}:{port} does not answer ({error or error.__class__.__name__}): "
                f"`knodel doctor` looks for the cause, `knodel up --detach` starts it"
            ) from error
        finally:
            connection.close()


def _translated(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    yield from iter(answer.readline, b"")


def _path(kind: Kind, namespace: str | None, name: str = "") -> str:
    prefix = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.api_version}"
    scope = f"/namespaces/{quote(namespace, safe='')}" if kind.namespaced and namespace is not None else ""
    return f"{prefix}{scope}/{kind.plural}" + (f"/{quote(name, safe='')}" if name else "")


def _dry(dry_run: bool) -> dict[str, str]:
    return {"dryRun": "All"} if dry_run else {}


def _bounded(answer: http.client.HTTPResponse) -> bytes:
    content = answer.read(LONGEST_ANSWER + 1)
    if len(content) > LONGEST_ANSWER:
        raise CommandError(
            f"the platform's answer is larger than {LONGEST_ANSWER} bytes: is something else on its port?"
        )
    return content


def _parse(content: bytes) -> Object:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CommandError("the platform's answer is no JSON: is something else on its port?") from error
    if not isinstance(value, dict):
        raise CommandError("the platform's answer is no object: is something else on its port?")
    return value


def _parse_failure(answer: http.client.HTTPResponse) -> Object:
    try:
        return _parse(_bounded(answer))
    except CommandError:
        return {"code": answer.status, "reason": "", "message": f"HTTP {answer.status} {answer.reason}"}


def _error(status: Object) -> KnodelError:
    """The error that a `Status` object stands for."""
    message, reason, code = str(status.get("message", "")), status.get("reason", ""), int(status.get("code", 500))
    if reason == "Invalid":
        causes = (status.get("details") or {}).get("causes") or ()
        fields = [FieldError(str(cause.get("field", "")), str(cause.get("message", ""))) for cause in causes]
        return Invalid(message.partition(":")[0], fields) if fields else UsageError(message)
    if reason == "Conflict":
        return Conflict(message)
    if code in (400, 405, 413, 415):
        return UsageError(message)
    known: dict[int, type[ClusterError]] = {403: Forbidden, 404: NotFound, 410: Gone, 503: Unavailable}
    if reason == "AlreadyExists":
        return AlreadyExists(message)
    return known.get(code, CommandError)(message)
