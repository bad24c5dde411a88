"""A thin client of the Kubernetes REST API on the standard library, since large imports would slow each command.

It serves for the control API of a platform on this machine and for kube-apiserver; `Server` holds the differences.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from clusters.base.errors import NamespaceTerminating, NotFound
from clusters.base.objects import Kind, Object
from serving.client.errors import ClientError, UsageError
from serving.client.http import FOREIGN, ApiResponse, exchange
from serving.client.responses import error_of, is_list, is_object, parse, raise_failure
from serving.client.server import Server

TIMEOUT = 30.0  # s for one response; the platform takes milliseconds
MIN_TIMEOUT = 5.0  # s; a response may take this long on an overloaded machine
WATCH_MARGIN = 5.0  # s by which the end of a watch may be late
MIN_RETRY_DELAY = 1.0  # s before a retry, also for `Retry-After: 0`
MANAGER = "knodel-cli"
SEPARATORS = frozenset("/%")
"""Characters that an API server does not allow in a path segment (apimachinery `IsValidPathSegmentName`)."""
JSON = "application/json"
MERGE = "application/merge-patch+json"
STRICT = {"fieldValidation": "Strict"}  # an unknown field is an error; otherwise the server drops it


class Client:
    """A client of one API server; `timeout` limits each response, in seconds."""

    def __init__(self, server: Server, timeout: float = TIMEOUT) -> None:
        self._server = server
        self._timeout = timeout

    @property
    def validates_models(self) -> bool:
        """Whether the server runs all checks of `serving.types` before it stores a Model."""
        return self._server.validates_models

    @property
    def restart_window(self) -> float:
        """How long a waiting command tolerates an unreachable server, in seconds."""
        return self._server.restart_window

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """Return one object. Raises NotFound."""
        return self._call("GET", _object_path(kind, namespace, name), is_good=is_object)

    def exists(self, kind: Kind, name: str, namespace: str = "") -> bool:
        """Return whether the object exists."""
        try:
            self.get(kind, name, namespace)
        except NotFound:
            return False
        return True

    def list(self, kind: Kind, namespace: str | None, selector: str = "", fields: str = "") -> Object:
        """Return a List object, of all namespaces for None, filtered by label `selector` and by field selector."""
        query = {"labelSelector": selector, "fieldSelector": fields}
        given = {name: value for name, value in query.items() if value}
        return self._call("GET", _path(kind, namespace), given, is_good=is_list)

    def merge(self, kind: Kind, name: str, namespace: str, patch: Mapping[str, Any], dry_run: bool = False) -> Object:
        """Apply a JSON merge patch (RFC 7386) and return the object. Raises NotFound, Conflict, Invalid."""
        path = _object_path(kind, namespace, name)
        return self._call("PATCH", path, _writing(dry_run), patch, MERGE, is_good=is_object)

    def create(self, kind: Kind, obj: Object, namespace: str = "", *, dry_run: bool = False) -> Object:
        """Create an object and return it. Raises AlreadyExists; NotFound when the namespace does not exist."""
        try:
            return self._call("POST", _path(kind, namespace), _writing(dry_run), obj, is_good=is_object)
        except NotFound as error:
            if not namespace or isinstance(error, NamespaceTerminating):
                raise
            remedy = f"`knodel namespace {namespace}` creates it"
            raise NotFound(f"namespace {namespace} not found: {remedy}") from error

    def delete(self, kind: Kind, name: str, namespace: str = "") -> None:
        """Delete an object. Raises NotFound."""
        self._call("DELETE", _object_path(kind, namespace, name))

    def review(self, kind: Kind, request: Object) -> Object:
        """Post an object that the server evaluates but does not store, such as a SelfSubjectAccessReview."""
        return self._call("POST", _path(kind, None), None, request)

    def read(self, path: str) -> Object:
        """Return the JSON object at a path outside the resources, such as `/version`."""
        return self._call("GET", path)

    def watch(
        self, kind: Kind, namespace: str, name: str, version: str, timeout: float
    ) -> Iterator[tuple[str, Object]]:
        """Watch one object: yield (event type, object), for at most `timeout` seconds. Raises Gone."""
        query = {
            "watch": "1",
            "resourceVersion": version,
            "fieldSelector": f"metadata.name={name}",
            "timeoutSeconds": str(max(1, int(timeout))),
        }
        for line in self._lines(_path(kind, namespace), query, silence=timeout + WATCH_MARGIN):
            event = parse(line, self._server)
            obj = event.get("object")
            if event.get("type") == "ERROR" and isinstance(obj, dict):
                raise error_of(obj, self._server)
            if not isinstance(event.get("type"), str) or not is_object(obj):
                raise ClientError(f"the response of {self._server.endpoint.what} is not a watch event: {FOREIGN}")
            yield event["type"], event["object"]

    def stream(self, path: str, query: Mapping[str, str]) -> Iterator[bytes]:
        """Yield the lines of a streamed response, such as a log."""
        return self._lines(path, query, silence=None)

    def log_path(self, namespace: str, pod: str) -> str:
        """Return the path of a Pod's log."""
        return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/log"

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        type: str = JSON,
        *,
        is_good: Callable[[object], bool] = lambda _: True,
    ) -> Object:
        content = json.dumps(body).encode() if body is not None else None
        value = self._send(method, path, query, content, type)
        if not is_good(value):
            what = self._server.endpoint.what
            raise ClientError(f"{what} sent a response of another kind to {method} {path}: {FOREIGN}")
        return value

    def _send(
        self, method: str, path: str, query: Mapping[str, str] | None, content: bytes | None, type: str
    ) -> Object:
        """Send a request and return the response; retry within the timeout if the server sends Retry-After."""
        target, deadline = _target(path, query), time.monotonic() + self._timeout
        while True:
            headers = self._headers() | ({"Content-Type": type} if content is not None else {})
            with exchange(
                self._server.endpoint, method, target, body=content, headers=headers, timeout=self._timeout
            ) as response:
                delay = _retry_delay(response)
                if delay is None or time.monotonic() + delay > deadline:
                    raise_failure(response, self._server, path)
                    return parse(response.body(), self._server)
            time.sleep(delay)

    def _lines(self, path: str, query: Mapping[str, str], silence: float | None) -> Iterator[bytes]:
        with exchange(
            self._server.endpoint, "GET", _target(path, query), headers=self._headers(),
            timeout=self._timeout, stream=True, silence=silence,
        ) as response:  # fmt: skip
            raise_failure(response, self._server, path)
            yield from response.lines()

    def _headers(self) -> dict[str, str]:
        return {"Accept": JSON, **self._server.credentials()}


def _retry_delay(response: ApiResponse) -> float | None:
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
