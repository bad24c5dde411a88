"""The control API as one ASGI application: guard, routes, errors as Status objects."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Any, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import KnodelError, NotFound
from clusters.base.objects import POD, Kind, Object
from clusters.net.exposition import Families, page_of
from serving.control_api import discovery
from serving.control_api.audit import Audit
from serving.control_api.guard import Guard, refuse_repeated
from serving.control_api.openapi import OpenApi, document_v2
from serving.control_api.resources import ResourceHandler, ResourcePath, about_of, error_response
from serving.control_api.reviews import REVIEWS
from serving.control_api.status import MalformedRequest, MethodNotAllowed, failure

log = logging.getLogger(__name__)

METRICS_PATH, TARGETS_PATH = "/metrics", "/metrics/targets"
LINKS_PATH = "/dashboard/links"
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
SUBRESOURCES = ("", "status", "log")
OBJECT_PATHS = tuple(
    f"{prefix}{scope}/{{plural}}{item}"
    for prefix in ("/api/{version}", "/apis/{group}/{version}")
    for scope in ("/namespaces/{namespace}", "")  # the longer one first: a namespace is not an object's name
    for item in ("", "/{name}", "/{name}/{subresource}")
)


class PodLogSource(Protocol):
    """A source of the logs of Pods."""

    def follow(self, pod: Object, *, tail: int | None, follow: bool, previous: bool) -> AsyncIterator[bytes]:
        """Yield the last `tail` lines (None: all). With `follow`, also yield new output until the Pod is gone.

        `previous` selects the log of the container's previous run.
        """
        ...

    def has_previous(self, pod: Object) -> bool:
        """Return whether the Pod's container ran before and was restarted."""
        ...


class ControlApi:
    """The routes of the control API over a cluster."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        kinds: Sequence[Kind],
        writable: Collection[Kind],
        logs: PodLogSource,
        clock: Clock,
        version: str,
        ready: Callable[[], bool],
        trouble: Callable[[], Awaitable[str]] | None = None,
        metrics: Callable[[], Families] = tuple,
        targets: Callable[[], Sequence[Object]] = tuple,
        link: Callable[[], str] | None = None,
    ) -> None:
        """Serve `kinds` of `cluster`. `trouble` returns why writes fail now, or an empty string.

        `metrics` returns the metrics of the platform's page for Prometheus, `targets` the addresses of the model
        servers for its HTTP service discovery. `link` returns the path of a new one-time link to the dashboard.
        """
        self._cluster = cluster
        self._kinds = kinds
        self._by_path = {(kind.group, kind.version, kind.plural): kind for kind in kinds}
        self._writable = writable
        self._logs = logs
        self._version = version
        self._ready = ready
        self._trouble = trouble
        self._metrics = metrics
        self._targets = targets
        self._link = link
        self._openapi = OpenApi(kinds)
        self._resources = ResourceHandler(cluster, writable, clock)

    def app(self, guard: Guard) -> ASGIApp:
        """Return the ASGI application behind `guard`."""
        routes = [
            Route("/healthz", self._health),
            Route("/livez", self._health),
            Route("/readyz", self._readiness),
            Route("/version", self._show_version),
            Route(METRICS_PATH, self._show_metrics),
            Route(TARGETS_PATH, self._discover(lambda: self._targets())),
            Route(LINKS_PATH, self._make_link, methods=["POST"]),
            Route("/api", self._discover(lambda: discovery.core_versions())),
            Route("/apis", self._discover(lambda: discovery.group_list(self._kinds))),
            Route("/openapi/v2", self._show_openapi_v2),
            Route("/openapi/v3", self._discover(self._openapi.index)),
            Route("/openapi/v3/{path:path}", self._show_openapi),
            Route("/apis/{group}", self._group),
            Route("/api/{version}", self._resource_list),
            Route("/apis/{group}/{version}", self._resource_list),
        ]
        routes.extend(Route(path, self._resource, methods=METHODS) for path in OBJECT_PATHS)
        handlers: dict[Any, Any] = {
            KnodelError: self._refused,
            404: _unknown_path,
            405: _wrong_method,
            Exception: _unforeseen,
        }
        return _Guarded(Starlette(routes=routes, exception_handlers=handlers), guard)

    async def _health(self, _request: Request) -> Response:
        return PlainTextResponse("ok")

    async def _readiness(self, _request: Request) -> Response:
        if not self._ready():
            return PlainTextResponse("starting", 503)
        if self._trouble is not None and await self._trouble():
            return PlainTextResponse("nothing can be written: the platform's log says why", 503)
        return PlainTextResponse("ok")

    async def _show_version(self, _request: Request) -> Response:
        return _json(discovery.version_info(self._version))

    async def _show_metrics(self, request: Request) -> Response:
        text, content_type = page_of(self._metrics(), request.headers.get("accept", ""))
        return Response(text, headers={"Content-Type": content_type})

    async def _make_link(self, request: Request) -> Response:
        if self._link is None:
            raise NotFound(f"{request.url.path}: this API has no dashboard")
        return _json({"path": self._link()})

    def _discover(self, make: Callable[[], Any]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(_request: Request) -> Response:
            return _json(make())

        return endpoint

    async def _show_openapi_v2(self, request: Request) -> Response:
        body, media_type = document_v2(request.headers.get("accept", ""))
        return Response(body, headers={"Vary": "Accept"}, media_type=media_type)

    async def _show_openapi(self, request: Request) -> Response:
        """Answer with one document. kubectl caches it by its address, which contains a hash of its content."""
        path = request.path_params["path"]
        body = self._openapi.document(path)
        if body is None:
            raise NotFound(f"{request.url.path}: no such group or version")
        etag = self._openapi.hashes[path]
        headers = {"ETag": f'"{etag}"'}
        if request.query_params.get("hash") == etag:
            headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return Response(body, headers=headers, media_type="application/json")

    async def _group(self, request: Request) -> Response:
        return _found(discovery.group(request.path_params["group"], self._kinds), request)

    async def _resource_list(self, request: Request) -> Response:
        group = request.path_params.get("group", "")
        version = request.path_params["version"]
        return _found(discovery.resource_list(group, version, self._kinds, self._writable), request)

    async def _resource(self, request: Request) -> Response:
        given = request.path_params
        review = REVIEWS.get((given.get("group", ""), given["version"], given["plural"]))
        if review is not None and request.method == "POST" and not given.get("name"):
            return await self._resources.review(request, review, self._kinds)
        target = self._target(request)
        if target.subresource == "log":
            return await self._log(request, target)
        return await self._resources.answer(request, target)

    async def _refused(self, request: Request, error: KnodelError) -> Response:
        """Answer with the Status of an error. It names the object; kubectl prints `The Model "a" is invalid`."""
        given = request.path_params
        kind = self._by_path.get((given.get("group", ""), given.get("version", ""), given.get("plural", "")))
        name = given.get("name") or getattr(request.state, "name", "")
        return error_response(error, about_of(kind, name) if kind is not None and name else {})

    def _target(self, request: Request) -> ResourcePath:
        given = request.path_params
        kind = self._by_path.get((given.get("group", ""), given["version"], given["plural"]))
        namespace = given.get("namespace")
        if kind is None or given.get("subresource", "") not in SUBRESOURCES:
            raise NotFound(
                f"{request.url.path}: no such resource; /apis lists the groups, /apis/GROUP/VERSION the kinds"
            )
        if kind.namespaced and namespace is None and given.get("name"):
            raise NotFound(f"{kind.resource} has namespaces: use /namespaces/NAMESPACE/{kind.plural}/NAME")
        return ResourcePath(kind, namespace, given.get("name", ""), given.get("subresource", ""))

    async def _log(self, request: Request, target: ResourcePath) -> Response:
        if target.kind is not POD or request.method != "GET":
            raise MethodNotAllowed("only Pods have logs, and logs are read-only")
        pod = await self._cluster.get(POD, target.name, target.namespace or "")
        tail = request.query_params.get("tailLines", "")
        if tail and not (tail.isascii() and tail.isdigit() and len(tail) < 10):
            raise MalformedRequest(f"tailLines {tail[:40]!r} is not a number of lines")
        follow = request.query_params.get("follow", "") in ("1", "true")
        previous = request.query_params.get("previous", "") in ("1", "true")
        if previous and not self._logs.has_previous(pod):  # the message of a kubelet
            container = str(pod["spec"]["containers"][0]["name"])
            raise MalformedRequest(f'previous terminated container "{container}" in pod "{target.name}" not found')
        lines = self._logs.follow(pod, tail=int(tail) if tail else None, follow=follow, previous=previous)
        return StreamingResponse(lines, media_type="text/plain")


class _Guarded:
    """Middleware that answers requests which the guard refuses."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard
        self._audit = Audit()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        headers = dict(pairs)
        refusal = refuse_repeated(pairs) or self._guard.refuse(scope["path"], headers)
        if refusal is None:
            await self._app(scope, receive, self._audit.wrap_send(scope, headers, send))
            return
        self._audit.refused(scope, headers, refusal.code)
        response = _json(failure(refusal.code, refusal.reason, refusal.message), refusal.code)
        if refusal.code == 401:
            response.headers["WWW-Authenticate"] = "Bearer"
        await response(scope, receive, send)


async def _unforeseen(request: Request, error: Exception) -> Response:
    """Answer an internal error without details, and log the traceback."""
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return error_response(KnodelError("internal error"))


async def _unknown_path(request: Request, _error: Exception) -> Response:
    return _json(failure(404, "NotFound", f"{request.url.path}: no such path"), 404)


async def _wrong_method(request: Request, _error: Exception) -> Response:
    return error_response(MethodNotAllowed(f"{request.method} is not allowed on {request.url.path}"))


def _found(value: Object | None, request: Request) -> Response:
    if value is None:
        raise NotFound(f"{request.url.path}: no such group or version")
    return _json(value)


def _json(value: Any, code: int = 200) -> Response:
    return Response(msgspec.json.encode(value), code, media_type="application/json")
