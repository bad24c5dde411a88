"""One thin REST client in Kubernetes' grammar, over the standard library: a command must not pay for a large import.

It talks to the control API of a platform on this machine, or to a real API server; which one, it does not ask.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from clusters.base.errors import NotFound
from clusters.base.objects import Kind, Object
from serving.cli.base.errors import CommandError, UsageError
from serving.cli.client.answers import error_of, is_list, is_object, parse, raise_failure
from serving.cli.client.http import FOREIGN, Answer, exchange
from serving.cli.client.server import Server

TIMEOUT = 30.0  # s for one answer of the platform; it takes milliseconds
LEAST_TIMEOUT = 5.0  # s; an answer may take that long on a machine with too much to do
WATCH_MARGIN = 5.0  # s that the end of a watch may come after the time that was agreed
LEAST_PAUSE = 1.0  # s before another try, also when the server says 0
MANAGER = "knodel-cli"
TERMINATING = "is being deleted"
"""In the message of a create in a namespace that ends, on a platform of this machine."""
SEPARATORS = frozenset("/%")
"""What an API server takes for more than a name, encoded or not (apimachinery `IsValidPathSegmentName`)."""
JSON = "application/json"
MERGE = "application/merge-patch+json"
STRICT = {"fieldValidation": "Strict"}  # a field that the server does not know is an error, not forgotten


class Client:
    """Kubernetes' grammar to one server, each answer within `timeout` seconds."""

    def __init__(self, server: Server, timeout: float = TIMEOUT) -> None:
        self._server = server
        self._timeout = timeout

    @property
    def checks_models(self) -> bool:
        """Whether the server asks every question of `serving.types` itself before it stores a Model."""
        return self._server.checks_models

    @property
    def restarts_within(self) -> float:
        """Seconds for which the server may be away while somebody waits."""
        return self._server.restarts_within

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """One object. Raises NotFound."""
        return self._call("GET", _object_path(kind, namespace, name), is_good=is_object)

    def list(self, kind: Kind, namespace: str | None, selector: str = "", fields: str = "") -> Object:
        """A List object; `namespace` None means all; selectors of labels and of fields."""
        query = {"labelSelector": selector, "fieldSelector": fields}
        given = {name: value for name, value in query.items() if value}
        return self._call("GET", _path(kind, namespace), given, is_good=is_list)

    def merge(self, kind: Kind, name: str, namespace: str, patch: Mapping[str, Any], dry_run: bool = False) -> Object:
        """JSON merge patch."""
        path = _object_path(kind, namespace, name)
        return self._call("PATCH", path, _writing(dry_run), patch, MERGE, is_good=is_object)

    def create(self, kind: Kind, obj: Object, namespace: str = "", *, dry_run: bool = False) -> Object:
        """Create. Raises AlreadyExists, NotFound for an absent namespace."""
        try:
            return self._call("POST", _path(kind, namespace), _writing(dry_run), obj, is_good=is_object)
        except NotFound as error:
            if not namespace or TERMINATING in str(error):
                raise
            remedy = f"`knodel namespace {namespace}` creates it"
            raise NotFound(f"there is no namespace {namespace}: {remedy}") from error

    def delete(self, kind: Kind, name: str, namespace: str = "") -> None:
        """Delete. Raises NotFound."""
        self._call("DELETE", _object_path(kind, namespace, name))

    def ask(self, kind: Kind, question: Object) -> Object:
        """The answer to an object that is a question and is not stored, such as a SelfSubjectAccessReview."""
        return self._call("POST", _path(kind, None), None, question)

    def read(self, path: str) -> Object:
        """The JSON object at a path that is no object's, such as `/version`."""
        return self._call("GET", path)

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
            event = parse(line, self._server)
            obj = event.get("object")
            if event.get("type") == "ERROR" and isinstance(obj, dict):
                raise error_of(obj, self._server)
            if not isinstance(event.get("type"), str) or not is_object(obj):
                raise CommandError(f"{self._server.endpoint.what}'s answer is no watch: {FOREIGN}")
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
        type: str = JSON,
        *,
        is_good: Callable[[object], bool] = lambda _: True,
    ) -> Object:
        content = json.dumps(body).encode() if body is not None else None
        value = self._patiently(method, path, query, content, type)
        if not is_good(value):
            what = self._server.endpoint.what
            raise CommandError(f"{what}'s answer to {method} {path} is not what was asked for: {FOREIGN}")
        return value

    def _patiently(
        self, method: str, path: str, query: Mapping[str, str] | None, content: bytes | None, type: str
    ) -> Object:
        """The answer; where the server asks for another try later, the answer to that, within the timeout."""
        target, deadline = _target(path, query), time.monotonic() + self._timeout
        while True:
            headers = self._headers() | ({"Content-Type": type} if content is not None else {})
            with exchange(
                self._server.endpoint, method, target, body=content, headers=headers, timeout=self._timeout
            ) as answer:
                pause = _pause(answer)
                if pause is None or time.monotonic() + pause > deadline:
                    raise_failure(answer, self._server, path)
                    return parse(answer.body(), self._server)
            time.sleep(pause)

    def _lines(self, path: str, query: Mapping[str, str], silence: float | None) -> Iterator[bytes]:
        with exchange(
            self._server.endpoint, "GET", _target(path, query), headers=self._headers(),
            timeout=self._timeout, stream=True, silence=silence,
        ) as answer:  # fmt: skip
            raise_failure(answer, self._server, path)
            yield from answer.lines()

    def _headers(self) -> dict[str, str]:
        return {"Accept": JSON, **self._server.credentials()}


def _pause(answer: Answer) -> float | None:
    """Seconds to wait when the server asks for another try (429 or 5xx with Retry-After, as client-go), else None."""
    return answer.retry_after(LEAST_PAUSE) if answer.status == 429 or answer.status >= 500 else None


def _target(path: str, query: Mapping[str, str] | None) -> str:
    return path + (f"?{urlencode(query)}" if query else "")


def _object_path(kind: Kind, namespace: str, name: str) -> str:
    if not name:
        raise UsageError(f"the name of a {kind.kind} is empty: give one")  # its path would be that of all of them
    if name in (".", "..") or not SEPARATORS.isdisjoint(name):  # its path would be that of something else
        raise NotFound(f"{kind.kind} {name!r} not found: a name has no / and no %")
    return _path(kind, namespace, name)


def _path(kind: Kind, namespace: str | None, name: str = "") -> str:
    prefix = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.api_version}"
    scope = f"/namespaces/{quote(namespace, safe='')}" if kind.namespaced and namespace is not None else ""
    return f"{prefix}{scope}/{kind.plural}" + (f"/{quote(name, safe='')}" if name else "")


def _writing(dry_run: bool) -> dict[str, str]:
    return {"fieldManager": MANAGER, **STRICT, **({"dryRun": "All"} if dry_run else {})}
