"""The verbs of the Kubernetes API: all kinds can be read and watched, writable kinds changed and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from clusters.base.api import Cluster, WatchEvent
from clusters.base.clock import Clock
from clusters.base.errors import Conflict, FieldError, Gone, Invalid, KnodelError
from clusters.base.objects import OWN_KINDS, Key, Kind, Object, key_of, version_of
from serving.control_api import body as bodies
from serving.control_api import protobuf, reviews
from serving.control_api.bodies import Bodies
from serving.control_api.body import (
    APPLY_TYPES,
    JSON_PATCH_TYPE,
    MERGE_TYPE,
    STRATEGIC_TYPE,
    content_type,
    parse_object,
)
from serving.control_api.fields import parse_field_selector
from serving.control_api.printers import make_table
from serving.control_api.status import MalformedRequest, MethodNotAllowed, UnsupportedMediaType, status_of, success
from serving.control_api.strategic import strategic_merge_patch

RACES = 5
"""Attempts of a strategic merge patch on an object that changes meanwhile."""
LONGEST_WATCH = (
    3600.0  # s; a watch without timeoutSeconds ends after this, as kube-apiserver ends its own after 30-60 min
)

LONGEST_NUMBER = 19
"""Digits of a parameter of a list, which Kubernetes reads as a signed 64-bit integer."""
_BOOLEANS = {"": False, "0": False, "false": False, "1": True, "true": True}


@dataclass(frozen=True, slots=True)
class ResourcePath:
    """The target of a path: kind, namespace (None: all), object name (empty: the collection), subresource."""

    kind: Kind
    namespace: str | None
    name: str = ""
    subresource: Literal["", "status", "log"] = ""


class ResourceHandler:
    """Handle requests on objects. Callers may change objects of `writable` kinds; all others are read-only."""

    def __init__(self, cluster: Cluster, writable: Collection[Kind], clock: Clock) -> None:
        self._cluster = cluster
        self._writable = writable
        self._clock = clock
        self._bodies = Bodies()

    async def answer(self, request: Request, target: ResourcePath) -> Response:
        """Return the response to a request on `target`. Raises ClusterError."""
        if request.method in ("GET", "HEAD"):
            return await self._read(request, target)
        if target.subresource:
            raise MethodNotAllowed(f"{target.kind.resource}/{target.subresource} is written by the platform only")
        if target.kind not in self._writable:
            raise MethodNotAllowed(f"{target.kind.resource} is written by the platform only: change a Model instead")
        if request.method == "POST" and not target.name:
            return await self._create(request, target)
        if request.method == "PATCH" and target.name:
            return await self._patch(request, target)
        if request.method == "PUT" and target.name:
            return await self._update(request, target)
        if request.method == "DELETE" and target.name:
            return await self._delete(request, target)
        raise MethodNotAllowed(f"{request.method} is not allowed on {request.url.path}")

    async def review(self, request: Request, review: str, kinds: Sequence[Kind]) -> Response:
        """Return the answer to a review, which is not stored. Raises MalformedRequest, UnsupportedMediaType."""
        asked = await self._read_object(request)
        if asked.get("kind", review) != review:
            raise MalformedRequest(f"kind {str(asked['kind'])[:40]!r} does not fit the path: it is {review!r} there")
        return _json({**asked, "metadata": {}, "status": reviews.answer(review, asked, kinds, self._writable)}, 201)

    async def _read(self, request: Request, target: ResourcePath) -> Response:
        if target.name:
            obj = await self._cluster.get(target.kind, target.name, target.namespace or "")
            return self._object(request, target.kind, obj)
        if _flag(request, "watch"):
            return await self._watch(request, target)
        _check_list(request)
        found = await self._cluster.list(target.kind, target.namespace, _selector(request))
        matches = parse_field_selector(request.query_params.get("fieldSelector", ""))
        items = [item for item in found.items if matches(item)]
        if _wants_table(request):
            return _json(self._table(request, target.kind, items, found.resource_version))
        return _json(
            {
                "kind": f"{target.kind.kind}List",
                "apiVersion": target.kind.api_version,
                "metadata": {"resourceVersion": found.resource_version},
                "items": items,
            }
        )

    async def _watch(self, request: Request, target: ResourcePath) -> Response:
        shape = self._shape(request, target.kind)
        matches = parse_field_selector(request.query_params.get("fieldSelector", ""))
        since = request.query_params.get("resourceVersion", "")
        first: list[Object] = []
        bookmarks = _flag(request, "allowWatchBookmarks")
        is_streamed_list = _flag(request, "sendInitialEvents")
        if is_streamed_list and not bookmarks:
            raise Invalid("watch", [FieldError("sendInitialEvents", "it needs allowWatchBookmarks=true")])
        if is_streamed_list or since in ("", "0"):
            snapshot = await self._cluster.list(target.kind, target.namespace, _selector(request))
            first, since = list(snapshot.items), snapshot.resource_version
        events = self._cluster.watch(target.kind, since, target.namespace, _selector(request))
        limit = _seconds(request.query_params.get("timeoutSeconds", ""))

        async def lines() -> AsyncIterator[bytes]:
            for obj in filter(matches, first):
                yield _line("ADDED", shape(obj))
            if is_streamed_list:
                yield _line("BOOKMARK", _initial_events_end(target.kind, since))
            try:
                async with asyncio.timeout(limit):
                    async for line in _watch_lines(events, first, matches, shape, bookmarks):
                        yield line
            except TimeoutError:
                return  # the timeout of the watch; the client resumes
            except Gone as error:
                yield _line("ERROR", status_of(error))

        return StreamingResponse(lines(), media_type="application/json")

    async def _create(self, request: Request, target: ResourcePath) -> Response:
        obj = _aligned(await self._read_object(request), target)
        request.state.name = obj["metadata"].get("name", "")  # for the Status of a refusal
        made = await self._cluster.create(target.kind, obj, manager=_manager(request), dry_run=_dry_run(request))
        return self._object(request, target.kind, made, code=201)

    async def _patch(self, request: Request, target: ResourcePath) -> Response:
        media_type = content_type(request)
        if media_type in APPLY_TYPES:
            obj = _aligned(await self._read_object(request), target)
            force = _flag(request, "force")
            done = await self._cluster.apply(
                target.kind, obj, manager=_manager(request), force=force, dry_run=_dry_run(request)
            )
            return self._object(request, target.kind, done)
        if media_type == STRATEGIC_TYPE and target.kind not in OWN_KINDS:  # Kubernetes supports it for core kinds only
            return await self._patch_strategically(request, target)
        if media_type not in (MERGE_TYPE, JSON_PATCH_TYPE):
            accepted = f"{JSON_PATCH_TYPE}, {MERGE_TYPE} or application/apply-patch+yaml"
            raise UnsupportedMediaType(f"Content-Type {media_type!r} is not supported here: send {accepted}")
        done = await self._cluster.patch(
            target.kind,
            target.name,
            await self._bodies.read(request, lambda body: _patch_document(body, media_type)),
            target.namespace or "",
            manager=_manager(request),
            type="json" if media_type == JSON_PATCH_TYPE else "merge",
            dry_run=_dry_run(request),
        )
        return self._object(request, target.kind, done)

    async def _patch_strategically(self, request: Request, target: ResourcePath) -> Response:
        """Apply the patch to the present object, and write the result unless the object has changed meanwhile."""
        patch = await self._bodies.read(request, lambda body: _patch_document(body, STRATEGIC_TYPE))
        for attempt in range(RACES):
            present = await self._cluster.get(target.kind, target.name, target.namespace or "")
            wanted = strategic_merge_patch(present, patch, f"{target.kind} {target.name!r}")
            metadata = wanted.get("metadata")
            if isinstance(metadata, dict):
                metadata.setdefault("resourceVersion", version_of(present))
            try:
                return await self._replace(request, target, wanted)
            except Conflict:
                is_asked = "resourceVersion" in (patch.get("metadata") or {})
                if is_asked or attempt == RACES - 1:
                    raise
        raise AssertionError("unreachable")

    async def _update(self, request: Request, target: ResourcePath) -> Response:
        obj = _aligned(await self._read_object(request), target)
        if target.kind in OWN_KINDS and not version_of(obj):
            await self._cluster.get(target.kind, target.name, target.namespace or "")  # raises NotFound first
            fault = FieldError("metadata.resourceVersion", "it must be specified for an update")
            raise Invalid(f"{target.kind} {target.name!r}", [fault])
        return await self._replace(request, target, obj)

    async def _replace(self, request: Request, target: ResourcePath, obj: Object) -> Response:
        """Replace the object, except fields that only the API server writes."""
        done = await self._cluster.patch(
            target.kind,
            target.name,
            [{"op": "replace", "path": "", "value": obj}],
            target.namespace or "",
            manager=_manager(request),
            type="json",
            dry_run=_dry_run(request),
        )
        return self._object(request, target.kind, done)

    async def _read_object(self, request: Request) -> Object:
        """Return the object in the body. Raises the errors of `Bodies.read` and `parse_object`."""
        return await self._bodies.read(request, lambda body: parse_object(body, content_type(request)))

    async def _delete(self, request: Request, target: ResourcePath) -> Response:
        media_type = content_type(request)
        uid, version, dry_run = await self._bodies.read(request, lambda body: _delete_options(body, media_type))
        if _dry_run(request) or dry_run:
            await self._cluster.get(target.kind, target.name, target.namespace or "")
            return _json(success())
        await self._cluster.delete(
            target.kind,
            target.name,
            target.namespace or "",
            uid=uid,
            resource_version=version,
        )
        return _json(success())

    def _object(self, request: Request, kind: Kind, obj: Object, code: int = 200) -> Response:
        return _json(self._shape(request, kind)(obj), code)

    def _shape(self, request: Request, kind: Kind) -> Callable[[Object], Object]:
        """Return the representation of one object: itself, or a Table of one row if the caller accepts Tables."""
        if not _wants_table(request):
            return lambda obj: obj
        return lambda obj: self._table(request, kind, [obj], version_of(obj))

    def _table(self, request: Request, kind: Kind, items: list[Object], version: str) -> Object:
        include = request.query_params.get("includeObject", "Metadata")
        return make_table(kind, items, self._clock.now(), version, include)


async def _watch_lines(
    events: AsyncIterator[WatchEvent],
    first: list[Object],
    matches: Callable[[Object], bool],
    shape: Callable[[Object], Object],
    bookmarks: bool,
) -> AsyncIterator[bytes]:
    """Yield watch events as lines. An object that starts or stops matching the field selector is added or deleted."""
    shown: set[Key] = {key_of(obj) for obj in first if matches(obj)}
    async for event in events:
        if event.type == "BOOKMARK":
            if bookmarks:
                yield _line("BOOKMARK", event.object)
            continue
        key, matching = key_of(event.object), matches(event.object)
        if event.type == "DELETED" or not matching:
            if key in shown or (matching and event.type == "DELETED"):
                shown.discard(key)
                yield _line("DELETED", shape(event.object))
            continue
        kind = event.type if event.type == "MODIFIED" or key not in shown else "MODIFIED"
        shown.add(key)
        yield _line(kind, shape(event.object))


def _patch_document(body: bytes, media_type: str) -> Any:
    patch = bodies.parse_json(body)
    wanted = list if media_type == JSON_PATCH_TYPE else dict
    if not isinstance(patch, wanted):
        raise MalformedRequest(f"a {media_type} body is a JSON {'array' if wanted is list else 'object'}")
    return patch


def _delete_options(body: bytes, media_type: str) -> tuple[str, str, bool]:
    """Return uid and resourceVersion of the preconditions (empty if absent), and whether it is a dry run.

    Raises MalformedRequest.
    """
    text = protobuf.to_json(body) if body and media_type == protobuf.MEDIA_TYPE else body
    options = bodies.parse_json(text) if text else {}
    wanted = (options.get("preconditions") or {}) if isinstance(options, dict) else None
    if not isinstance(wanted, dict):
        raise MalformedRequest("the body is not a DeleteOptions: it and its preconditions must be JSON objects")
    values = [wanted.get(name) or "" for name in ("uid", "resourceVersion")]
    if not all(isinstance(value, str) for value in values):
        raise MalformedRequest("preconditions.uid and preconditions.resourceVersion must be strings")
    asked = options.get("dryRun") or []
    if asked not in ([], ["All"]):
        raise MalformedRequest("dryRun of the body is not known: the only value is [All]")
    return values[0], values[1], bool(asked)


def _aligned(obj: dict[str, Any], target: ResourcePath) -> Object:
    """Return the object with kind, name and namespace of the path. Raises MalformedRequest if they differ."""
    metadata = dict(obj.get("metadata") or {})
    expected = {"apiVersion": target.kind.api_version, "kind": target.kind.kind}
    for field, value in expected.items():
        if obj.get(field, value) != value:
            raise MalformedRequest(f"{field} {obj[field]!r} does not fit the path: it is {value!r} there")
    for field, value in (("name", target.name), ("namespace", target.namespace or "")):
        if value and metadata.setdefault(field, value) != value:
            raise MalformedRequest(f"metadata.{field} {metadata[field]!r} does not fit the path: it is {value!r} there")
    return {**obj, **expected, "metadata": metadata}


def _line(type: str, obj: Object) -> bytes:
    return msgspec.json.encode({"type": type, "object": obj}) + b"\n"


def _json(value: Any, code: int = 200) -> Response:
    return Response(msgspec.json.encode(value), code, media_type="application/json")


def about_of(kind: Kind, name: str) -> Object:
    """Return the part of a Status's `details` that names an object."""
    return {"name": name, "group": kind.group, "kind": kind.kind}


def error_response(error: KnodelError, about: Object | None = None) -> Response:
    """Return the Status of an error as a response. `about` names the object in its `details`."""
    status = status_of(error)
    if about:
        status["details"] = {**about, **status.get("details", {})}
    retry = status.get("details", {}).get("retryAfterSeconds")
    response = _json(status, int(status["code"]))
    if retry is not None:
        response.headers["Retry-After"] = str(retry)
    return response


def _initial_events_end(kind: Kind, version: str) -> Object:
    """Return the bookmark after the initial events of a streaming list, which client-go 1.35 uses for its watches."""
    annotations = {"k8s.io/initial-events-end": "true"}
    metadata = {"resourceVersion": version, "annotations": annotations}
    return {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}


def _flag(request: Request, name: str) -> bool:
    """Return a Boolean parameter. Raises MalformedRequest for other values."""
    text = request.query_params.get(name, "").lower()
    if text not in _BOOLEANS:
        raise MalformedRequest(f"{name} {text[:40]!r} is neither true nor false")
    return _BOOLEANS[text]


def _check_list(request: Request) -> None:
    """Check the parameters of a list. Raises MalformedRequest.

    A list is always complete and current, so resourceVersion and limit have no effect, and there is nothing to
    continue.
    """
    for name in ("resourceVersion", "limit"):
        text = request.query_params.get(name, "")
        if text and not (text.isascii() and text.isdigit() and len(text) <= LONGEST_NUMBER):
            raise MalformedRequest(f"{name} {text[:40]!r} is not a whole number from 0")
    if request.query_params.get("continue"):
        raise MalformedRequest("continue: lists are never truncated here: leave it out")


def _selector(request: Request) -> str:
    return request.query_params.get("labelSelector", "")


def _wants_table(request: Request) -> bool:
    return "as=Table" in request.headers.get("accept", "")


def _manager(request: Request) -> str:
    """Return the field manager, by default the client's name from its User-Agent, as in kube-apiserver."""
    return request.query_params.get("fieldManager") or request.headers.get("user-agent", "unknown").partition("/")[0]


def _dry_run(request: Request) -> bool:
    """Return whether it is a dry run. Raises MalformedRequest for other values, which must not cause a write."""
    asked = request.query_params.getlist("dryRun")
    if any(value not in ("", "All") for value in asked):
        raise MalformedRequest(f"dryRun {asked[:3]!r} is not known: the only value is All")
    return "All" in asked


def _seconds(text: str) -> float:
    if not text:
        return LONGEST_WATCH
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise MalformedRequest(f"timeoutSeconds {text[:40]!r} is not a number of seconds")
    return min(float(text), LONGEST_WATCH)
