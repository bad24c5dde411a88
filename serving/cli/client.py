"""One thin REST client of the control API, over the standard library: a command must not pay for a large import."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
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
from serving.cli.http import FOREIGN, Answer, exchange
from serving.cli.state import Platform

TIMEOUT = 30.0  # s for one answer of the platform; it takes milliseconds
LEAST_TIMEOUT = 5.0  # s; an answer may take that long on a machine with too much to do
WATCH_MARGIN = 5.0  # s that the end of a watch may come after the time that was agreed
PLATFORM = "the platform"
MANAGER = "knodel-cli"
MERGE = "application/merge-patch+json"


class Client:
    """Kubernetes' grammar to one platform."""

    def __init__(self, platform: Platform, timeout: float = TIMEOUT) -> None:
        self._platform = platform
        self._timeout = timeout

    def get(self, kind: Kind, name: str, namespace: str) -> Object:
        """One object. Raises NotFound."""
        return self._call("GET", _object_path(kind, namespace, name), is_good=_is_object)

    def list(self, kind: Kind, namespace: str | None, selector: str = "") -> Object:
        """A List object; `namespace` None means all."""
        query = {"labelSelector": selector} if selector else {}
        return self._call("GET", _path(kind, namespace), query, is_good=_is_list)

    def merge(self, kind: Kind, name: str, namespace: str, patch: Mapping[str, Any], dry_run: bool = False) -> Object:
        """JSON merge patch."""
        query = {"fieldManager": MANAGER} | _dry(dry_run)
        return self._call("PATCH", _object_path(kind, namespace, name), query, patch, MERGE, is_good=_is_object)

    def create(self, kind: Kind, obj: Object, namespace: str, *, dry_run: bool = False) -> Object:
        """Create. Raises AlreadyExists."""
        query = {"fieldManager": MANAGER} | _dry(dry_run)
        return self._call("POST", _path(kind, namespace), query, obj, is_good=_is_object)

    def delete(self, kind: Kind, name: str, namespace: str) -> None:
        """Delete. Raises NotFound."""
        self._call("DELETE", _object_path(kind, namespace, name))

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
        for line in self._lines(_path(kind, namespace), query, silence=timeout + WATCH_MARGIN):
            event = _parse(line)
            obj = event.get("object")
            if event.get("type") == "ERROR" and isinstance(obj, dict):
                raise _error(obj)
            if not isinstance(event.get("type"), str) or not _is_object(obj):
                raise CommandError(f"{PLATFORM}'s answer is no watch: {FOREIGN}")
            yield event["type"], event["object"]

    def stream(self, path: str, query: Mapping[str, str]) -> Iterator[bytes]:
        """The lines of a streamed answer, such as a log."""
        return self._lines(path, query, silence=None)

    def log_path(self, namespace: str, pod: str) -> str:
        """Where a Pod's log is."""
        return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/log"

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        type: str = "application/json",
        *,
        is_good: Callable[[object], bool] = lambda _: True,
    ) -> Object:
        headers = self._headers() | ({"Content-Type": type} if body is not None else {})
        content = json.dumps(body).encode() if body is not None else None
        with exchange(
            self._platform.control, PLATFORM, method, _target(path, query), body=content, headers=headers,
            timeout=self._timeout,
        ) as answer:  # fmt: skip
            _raise_failure(answer)
            value = _parse(answer.body())
        if not is_good(value):
            raise CommandError(f"{PLATFORM}'s answer to {method} {path} is not what was asked for: {FOREIGN}")
        return value

    def _lines(self, path: str, query: Mapping[str, str], silence: float | None) -> Iterator[bytes]:
        with exchange(
            self._platform.control, PLATFORM, "GET", _target(path, query), headers=self._headers(),
            timeout=self._timeout, stream=True, silence=silence,
        ) as answer:  # fmt: skip
            _raise_failure(answer)
            yield from answer.lines()

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._platform.token}", "Accept": "application/json"}


def _target(path: str, query: Mapping[str, str] | None) -> str:
    return path + (f"?{urlencode(query)}" if query else "")


def _object_path(kind: Kind, namespace: str, name: str) -> str:
    if not name:
        raise UsageError(f"the name of a {kind.kind} is empty: give one")  # its path would be that of all of them
    return _path(kind, namespace, name)


def _path(kind: Kind, namespace: str | None, name: str = "") -> str:
    prefix = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.api_version}"
    scope = f"/namespaces/{quote(namespace, safe='')}" if kind.namespaced and namespace is not None else ""
    return f"{prefix}{scope}/{kind.plural}" + (f"/{quote(name, safe='')}" if name else "")


def _dry(dry_run: bool) -> dict[str, str]:
    return {"dryRun": "All"} if dry_run else {}


def _parse(content: bytes) -> Object:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{PLATFORM}'s answer is no JSON: {FOREIGN}") from error
    if not isinstance(value, dict):
        raise CommandError(f"{PLATFORM}'s answer is no object: {FOREIGN}")
    return value


def _is_object(value: object) -> bool:
    metadata = value.get("metadata") if isinstance(value, dict) else None
    return isinstance(metadata, dict) and isinstance(metadata.get("name"), str)


def _is_list(value: object) -> bool:
    items = value.get("items") if isinstance(value, dict) else None
    return isinstance(items, list) and all(map(_is_object, items))


def _raise_failure(answer: Answer) -> None:
    if answer.status < 300:
        return
    try:
        status = _parse(answer.body())
    except CommandError:
        status = {}
    if status.get("kind") != "Status" or not isinstance(status.get("message"), str):
        raise CommandError(
            f"{PLATFORM} answered HTTP {answer.status} {answer.phrase}, and not as Knodel does: {FOREIGN}"
        )
    raise _error({**status, "code": answer.status})


def _error(status: Object) -> KnodelError:
    """The error that a `Status` object stands for."""
    message, reason, code = str(status.get("message", "")), status.get("reason", ""), status.get("code")
    if reason == "Invalid":
        fields = _causes(status)
        return Invalid(message.partition(":")[0], fields) if fields else UsageError(message)
    if reason == "Conflict":
        return Conflict(message)
    if reason == "AlreadyExists":
        return AlreadyExists(message)
    if code in (400, 405, 413, 415):
        return UsageError(message)
    if code == 401:
        return CommandError(f"{PLATFORM} does not take the token of the state folder: is another one on its port?")
    known: dict[Any, type[ClusterError]] = {403: Forbidden, 404: NotFound, 410: Gone, 503: Unavailable}
    return known.get(code, CommandError)(message)


def _causes(status: Object) -> list[FieldError]:
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return [
        FieldError(str(cause.get("field", "")), str(cause.get("message", "")))
        for cause in (causes if isinstance(causes, list) else ())
        if isinstance(cause, dict)
    ]
