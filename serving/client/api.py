"""The operations of the Kubernetes REST API, for the control API of a platform on this machine and for kube-apiserver.

`Server` holds the differences between the two.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

from clusters.base.errors import NamespaceTerminating, NotFound
from clusters.base.objects import MODEL, Kind, Object
from serving.client.effects import (
    Call,
    HttpAnswer,
    HttpRequest,
    Item,
    Items,
    exchange,
    now,
    open_stream,
    read_line,
    sleep,
    work,
)
from serving.client.errors import ClientError, Unreachable, UsageError, no_model
from serving.client.http import FOREIGN
from serving.client.responses import error_of, is_list, is_object, parse, raise_failure
from serving.client.server import Server

TIMEOUT = 30.0  # s for one response; the platform takes milliseconds
MIN_TIMEOUT = 5.0  # s; a response may take this long on an overloaded machine
WATCH_MARGIN = 5.0  # s by which the end of a watch may be late
RETRY_DELAY = 0.1  # s before a read is sent again
MIN_RETRY_DELAY = 1.0  # s before a retry, also for `Retry-After: 0`
MANAGER = "knodel-cli"
SEPARATORS = frozenset("/%")
"""Characters that an API server does not allow in a path segment (apimachinery `IsValidPathSegmentName`)."""
JSON = "application/json"
MERGE = "application/merge-patch+json"
STRICT = {"fieldValidation": "Strict"}  # an unknown field is an error; otherwise the server drops it


class ApiCalls:
    """The operations of one API server; `timeout` limits each response, in seconds.

    A read that got no response is sent again, `retries` times within the timeout.
    """

    def __init__(self, server: Server, timeout: float = TIMEOUT, retries: int = 0) -> None:
        self.server = server
        self._timeout = timeout
        self._retries = retries

    def get(self, kind: Kind, name: str, namespace: str = "") -> Call[Object]:
        """Return one object. Raises NotFound."""
        with _absence(kind, name, namespace):
            return (yield from self._call("GET", _object_path(kind, namespace, name), is_good=is_object))

    def exists(self, kind: Kind, name: str, namespace: str = "") -> Call[bool]:
        """Return whether the object exists."""
        try:
            yield from self.get(kind, name, namespace)
        except NotFound:
            return False
        return True

    def list(self, kind: Kind, namespace: str | None, selector: str = "", fields: str = "") -> Call[Object]:
        """Return a List object, of all namespaces for None, filtered by label `selector` and by field selector."""
        query = {"labelSelector": selector, "fieldSelector": fields}
        given = {name: value for name, value in query.items() if value}
        return (yield from self._call("GET", _path(kind, namespace), given, is_good=is_list))

    def merge(
        self, kind: Kind, name: str, namespace: str, patch: Mapping[str, Any], dry_run: bool = False
    ) -> Call[Object]:
        """Apply a JSON merge patch (RFC 7386) and return the object. Raises NotFound, Conflict, Invalid."""
        path = _object_path(kind, namespace, name)
        with _absence(kind, name, namespace):
            return (yield from self._call("PATCH", path, _writing(dry_run), patch, MERGE, is_good=is_object))

    def create(self, kind: Kind, obj: Object, namespace: str = "", *, dry_run: bool = False) -> Call[Object]:
        """Create an object and return it. Raises AlreadyExists; NotFound when the namespace does not exist."""
        try:
            return (yield from self._call("POST", _path(kind, namespace), _writing(dry_run), obj, is_good=is_object))
        except NotFound as error:
            if not namespace or isinstance(error, NamespaceTerminating):
                raise
            remedy = f"`knodel namespace {namespace}` creates it"
            raise NotFound(f"namespace {namespace} not found: {remedy}") from error

    def delete(self, kind: Kind, name: str, namespace: str = "") -> Call[None]:
        """Delete an object. Raises NotFound."""
        with _absence(kind, name, namespace):
            yield from self._call("DELETE", _object_path(kind, namespace, name))

    def review(self, kind: Kind, request: Object) -> Call[Object]:
        """Post an object that the server evaluates but does not store, such as a SelfSubjectAccessReview."""
        return (yield from self._call("POST", _path(kind, None), None, request))

    def read(self, path: str) -> Call[Object]:
        """Return the JSON object at a path outside the resources, such as `/version`."""
        return (yield from self._call("GET", path))

    def page(self, path: str, timeout: float) -> Call[bytes]:
        """Return the content of a path, such as a page of a Pod through the API server, within `timeout` seconds."""
        headers = yield from self._headers()
        answer = yield from exchange(HttpRequest(self.server.endpoint, "GET", path, headers, timeout=timeout))
        raise_failure(answer, self.server, path)
        return answer.content

    def post(self, path: str) -> Call[Object]:
        """Post nothing to a path outside the resources, and return the JSON object."""
        return (yield from self._call("POST", path))

    def watch(
        self, kind: Kind, namespace: str | None, name: str, version: str, timeout: float
    ) -> Items[tuple[str, Object]]:
        """Watch one object: yield (event type, object), for at most `timeout` seconds. Raises Gone."""
        lines = yield from self.open_watch(kind, namespace, name, version, timeout)
        while event := (yield from self.next_event(lines)):
            yield Item(event)

    def open_watch(
        self, kind: Kind, namespace: str | None, name: str, version: str, timeout: float, selector: str = ""
    ) -> Call[Any]:
        """Start a watch as `watch`, and return its stream for `next_event`.

        Without a `name`, watch all objects of the namespace (None: of all) with the labels of the `selector`.
        """
        query = {
            "watch": "1",
            "resourceVersion": version,
            "timeoutSeconds": str(max(1, int(timeout))),
            **({"fieldSelector": f"metadata.name={name}"} if name else {}),
            **({"labelSelector": selector} if selector else {}),
        }
        return (yield from self.open_lines(_path(kind, namespace), query, silence=timeout + WATCH_MARGIN))

    def next_event(self, lines: Any) -> Call[tuple[str, Object] | None]:
        """Return the next event of a watch, None at its end. Raises Gone."""
        line = yield from read_line(lines)
        if not line:
            return None
        event = parse(line, self.server)
        obj = event.get("object")
        if event.get("type") == "ERROR" and isinstance(obj, dict):
            raise error_of(obj, self.server)
        if not isinstance(event.get("type"), str) or not is_object(obj):
            raise ClientError(f"the response of {self.server.endpoint.what} is not a watch event: {FOREIGN}")
        return event["type"], event["object"]

    def stream(self, path: str, query: Mapping[str, str]) -> Items[bytes]:
        """Yield the lines of a streamed response, such as a log."""
        lines = yield from self.open_lines(path, query)
        while line := (yield from read_line(lines)):
            yield Item(line)

    def open_lines(self, path: str, query: Mapping[str, str], silence: float | None = None) -> Call[Any]:
        """Return a stream for `read_line`; its lines may be `silence` seconds apart (None: no limit)."""
        headers = yield from self._headers()
        request = HttpRequest(self.server.endpoint, "GET", _target(path, query), headers, None, self._timeout)
        answer = yield from open_stream(request, silence)
        raise_failure(answer, self.server, path)
        return answer.stream

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        type: str = JSON,
        *,
        is_good: Callable[[object], bool] = lambda _: True,
    ) -> Call[Object]:
        try:
            content = json.dumps(body).encode() if body is not None else None
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"a field is not JSON ({error}): give numbers, strings, lists and dicts") from error
        value = yield from self._send(method, path, query, content, type)
        if not is_good(value):
            what = self.server.endpoint.what
            raise ClientError(f"{what} sent a response of another kind to {method} {path}: {FOREIGN}")
        return value

    def _send(
        self, method: str, path: str, query: Mapping[str, str] | None, content: bytes | None, type: str
    ) -> Call[Object]:
        """Send a request and return the response; retry within the timeout if the server sends Retry-After."""
        target, deadline, left = _target(path, query), (yield from now()) + self._timeout, self._retries
        while True:
            headers = (yield from self._headers()) | ({"Content-Type": type} if content is not None else {})
            try:
                answer = yield from exchange(
                    HttpRequest(self.server.endpoint, method, target, headers, content, self._timeout)
                )
            except Unreachable:
                if method != "GET" or not left or (yield from now()) + RETRY_DELAY > deadline:
                    raise
                left -= 1
                yield from sleep(RETRY_DELAY)
                continue
            delay = _retry_delay(answer)
            if delay is None or (yield from now()) + delay > deadline:
                raise_failure(answer, self.server, path)
                return parse(answer.content, self.server)
            yield from sleep(delay)

    def _headers(self) -> Call[dict[str, str]]:
        return {"Accept": JSON, **(yield from work(self.server.credentials))}


@contextmanager
def _absence(kind: Kind, name: str, namespace: str) -> Iterator[None]:
    """Translate the error of an API server for a Model that does not exist; an absent CRD keeps its own error."""
    try:
        yield
    except NotFound as error:
        if kind != MODEL or not re.fullmatch(rf"{re.escape(str(MODEL))} \S+ not found", str(error)):
            raise
        raise no_model(name, namespace) from error


def log_path(namespace: str, pod: str) -> str:
    """Return the path of a Pod's log."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/log"


def _retry_delay(response: HttpAnswer) -> float | None:
    """Return the seconds before a retry, for 429 or 5xx with Retry-After (as client-go does), else None."""
    return response.retry_after(MIN_RETRY_DELAY) if response.status == 429 or response.status >= 500 else None


def _target(path: str, query: Mapping[str, str] | None) -> str:
    return path + (f"?{urlencode(query)}" if query else "")


def _object_path(kind: Kind, namespace: str, name: str) -> str:
    if not name:
        raise UsageError(f"the name of a {kind.kind} is empty: give a name")  # an empty name is the path of the list
    if name in (".", "..") or not SEPARATORS.isdisjoint(name):  # such a name is the path of another resource
        raise NotFound(f"{kind.kind} {name!r} not found: a name cannot contain / or %")
    return _path(kind, namespace, name)


def _path(kind: Kind, namespace: str | None, name: str = "") -> str:
    prefix = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.api_version}"
    scope = f"/namespaces/{quote(namespace, safe='')}" if kind.namespaced and namespace is not None else ""
    return f"{prefix}{scope}/{kind.plural}" + (f"/{quote(name, safe='')}" if name else "")


def _writing(dry_run: bool) -> dict[str, str]:
    return {"fieldManager": MANAGER, **STRICT, **({"dryRun": "All"} if dry_run else {})}
