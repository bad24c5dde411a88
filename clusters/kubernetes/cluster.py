"""The `Cluster` protocol over kube-apiserver: each method is one request, and its response is the object."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from clusters.base.api import ObjectList, PatchType, Subresource, Trim, WatchEvent
from clusters.base.backoff import Backoff
from clusters.base.clock import Clock, SystemClock
from clusters.base.errors import ClusterError, Conflict, FieldError, Invalid
from clusters.base.objects import Key, Kind, Object
from clusters.base.patches import json_patch
from clusters.base.selectors import parse_selector
from clusters.kubernetes.connection import ApiConnection, connect
from clusters.kubernetes.errors import PatchRefused
from clusters.kubernetes.pages import PAGE, list_all
from clusters.kubernetes.transport import ApiRequest, Timeouts, Transport
from clusters.kubernetes.watch import ResumingWatch

APPLY = "application/apply-patch+yaml"
"""The content type of server-side apply. JSON is a subset of YAML."""
PATCHES: Mapping[PatchType, str] = {"merge": "application/merge-patch+json", "json": "application/json-patch+json"}
SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale"}
RACES = 5
"""Retries of a write without a precondition after a conflict within the API server."""
AT_ONCE = 32
"""Concurrent creations of one call, a third of the client's connections: other requests need some too."""
RACE_PAUSE = 0.02
"""s before the first retry, doubled each time and with jitter."""
_NO_SEGMENTS = ("", ".", "..")
"""Names that would change the path of an object to another one, such as that of the collection."""
_RACES = Backoff(RACE_PAUSE, RACE_PAUSE * 2**RACES)


class KubernetesCluster:
    """The `Cluster` of a real API server. Use `connect`, or pass a connection and call `close`.

    Example:
        async with KubernetesCluster.connect() as cluster:
            models = await cluster.list(MODEL)
    """

    def __init__(
        self,
        connection: ApiConnection,
        *,
        clock: Clock | None = None,
        timeouts: Timeouts | None = None,
        page: int = PAGE,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.connection = connection
        self._clock = clock or SystemClock()
        self._timeouts = timeouts or Timeouts()
        self._transport = Transport(connection, self._clock, self._timeouts, chance)
        self._page = page

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        context: str | None = None,
        kubeconfig: Path | None = None,
        *,
        clock: Clock | None = None,
        timeouts: Timeouts | None = None,
        user_agent: str = "knodel",
    ) -> AsyncIterator[KubernetesCluster]:
        """Yield a cluster with the credentials of a kubeconfig or of a Pod's service account. Raises LoginError."""
        async with await connect(context, kubeconfig, user_agent=user_agent) as connection:
            yield cls(connection, clock=clock, timeouts=timeouts)

    async def close(self) -> None:
        """Close all connections."""
        await self.connection.close()

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """Return one object. Raises NotFound."""
        request = ApiRequest("GET", object_path(kind, name, namespace), _what(kind, name, namespace))
        return await self._object(request)

    async def list(
        self, kind: Kind, namespace: str | None = None, selector: str = "", *, trim: Trim | None = None
    ) -> ObjectList:
        """Return the objects of a kind, in all namespaces or in one. Raises Invalid for a malformed selector."""
        request = _of_collection(kind, namespace, selector, f"list of {kind}")
        return await list_all(self._transport, kind, request, self._page, trim)

    def watch(
        self, kind: Kind, resource_version: str, namespace: str | None = None, selector: str = ""
    ) -> AsyncIterator[WatchEvent]:
        """Yield the changes after `resource_version`; "" and "0" start with all objects. Raises Gone, Invalid."""
        if resource_version and not resource_version.isdecimal():
            raise Invalid(
                f"watch of {kind}", [FieldError("resourceVersion", f"{resource_version!r} is not a resource version")]
            )
        request = _of_collection(kind, namespace, selector, f"watch of {kind}")
        return ResumingWatch(self._transport, request, resource_version, self._clock, self._timeouts).events()

    async def create(self, kind: Kind, obj: Object, *, manager: str, dry_run: bool = False) -> Object:
        """Store a new object. Raises AlreadyExists, Invalid, and NotFound for an absent or terminating namespace."""
        key = _key(kind, obj)
        path = collection_path(kind, key.namespace)
        request = ApiRequest(
            "POST", path, f"{kind} {str(key)!r}", _written(manager, dry_run), _body(kind, _typed(kind, obj))
        )
        return await self._object(request)

    async def create_all(
        self, kind: Kind, objects: Sequence[Object], *, manager: str
    ) -> Sequence[Object | ClusterError]:
        """Store new objects, `AT_ONCE` at a time, and return for each the object or the error."""
        turn = asyncio.Semaphore(AT_ONCE)

        async def one(obj: Object) -> Object | ClusterError:
            async with turn:
                try:
                    if not _key(kind, obj).name:
                        raise Invalid(str(kind), [FieldError("metadata.name", "it is required")])
                    return await self.create(kind, obj, manager=manager)
                except ClusterError as error:
                    return error

        return await asyncio.gather(*map(one, objects))

    async def apply(
        self,
        kind: Kind,
        obj: Object,
        *,
        manager: str,
        force: bool = False,
        subresource: Subresource = "",
        dry_run: bool = False,
    ) -> Object:
        """Apply an object. Raises Conflict (with `fields`), Invalid, NotFound for an absent object's subresource."""
        key = _key(kind, obj)
        path = object_path(kind, key.name, key.namespace, subresource)
        query = {**_written(manager, dry_run), "force": "true" if force else "false"}
        request = ApiRequest(
            "PATCH", path, f"{kind} {str(key)!r}", query, _body(kind, _applied(kind, obj, subresource)), APPLY
        )
        try:
            return await self._write(request, bool(obj["metadata"].get("resourceVersion")))
        except Invalid as error:
            uid = obj["metadata"].get("uid")
            if uid and {cause.path for cause in error.causes} == {"metadata.uid"}:
                words = f"the object with uid {uid!r} was replaced: read it again"
                raise Conflict(f"{request.what}: {words}") from error
            raise

    async def patch(
        self,
        kind: Kind,
        name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        namespace: str = "",
        *,
        manager: str,
        type: PatchType = "merge",
        subresource: Subresource = "",
        dry_run: bool = False,
    ) -> Object:
        """Apply a JSON merge patch or JSON patch. Raises NotFound, Conflict, Invalid."""
        path = object_path(kind, name, namespace, subresource)
        what = _what(kind, name, namespace)
        request = ApiRequest("PATCH", path, what, _written(manager, dry_run), _body(kind, patch), PATCHES[type])
        try:
            return await self._write(request, _is_conditional(patch))
        except PatchRefused as refusal:
            if type != "json" or isinstance(patch, Mapping):
                raise
            raise await self._refusal_reason(refusal, request, patch) from refusal

    async def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period: int | None = None,
    ) -> None:
        """Delete an object, and its dependents in the background. Raises NotFound, Conflict."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        if any(preconditions.values()):
            options["preconditions"] = {field: value for field, value in preconditions.items() if value}
        if grace_period is not None:
            options["gracePeriodSeconds"] = grace_period
        path, what = object_path(kind, name, namespace), _what(kind, name, namespace)
        await self._transport.call(ApiRequest("DELETE", path, what, body=msgspec.json.encode(options)))

    async def scale(
        self, kind: Kind, name: str, namespace: str, replicas: int, *, manager: str, uid: str = ""
    ) -> Object:
        """Set `.spec.replicas` and return the Scale object. Raises NotFound, Conflict, Invalid."""
        patch: Object = {"metadata": {"uid": uid}} if uid else {}
        patch["spec"] = {"replicas": replicas}
        return await self.patch(kind, name, patch, namespace, manager=manager, subresource="scale")

    async def _object(self, request: ApiRequest) -> Object:
        answer: Object = await self._transport.call(request)
        return answer

    async def _write(self, request: ApiRequest, conditional: bool) -> Object:
        """Send a patch. After a conflict, retry a patch without a precondition: it applies to any version."""
        for attempt in range(RACES):
            try:
                return await self._object(request)
            except Conflict as error:
                if conditional or error.fields or "changed meanwhile" not in str(error):
                    raise
            await asyncio.sleep(self._transport.lengthened(_RACES.delay(attempt)))
        return await self._object(request)

    async def _refusal_reason(
        self, refusal: PatchRefused, request: ApiRequest, operations: Sequence[Mapping[str, Any]]
    ) -> ClusterError:
        """Return the reason of a refused JSON patch. The API server omits it, so apply the patch to the object here."""
        try:
            json_patch(
                await self._object(replace(request, method="GET", query={}, body=None)), operations, request.what
            )
        except ClusterError as error:
            return error
        if any(operation.get("op") == "test" for operation in operations):
            return Conflict(f"{request.what}: its JSON patch's test failed, or it was changed meanwhile: read it again")
        return refusal


def _what(kind: Kind, name: str, namespace: str) -> str:
    return f"{kind} {str(Key(namespace if kind.namespaced else '', name))!r}"


def _key(kind: Kind, obj: Object) -> Key:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        raise Invalid(str(kind), [FieldError("metadata", "a map with at least a name is required")])
    return Key(str(metadata.get("namespace") or "") if kind.namespaced else "", str(metadata.get("name") or ""))


def _of_collection(kind: Kind, namespace: str | None, selector: str, what: str) -> ApiRequest:
    parse_selector(selector)  # raises the same error on every cluster
    query = {"labelSelector": selector} if selector else {}
    return ApiRequest("GET", collection_path(kind, namespace), what, query)


def _written(manager: str, dry_run: bool) -> dict[str, str]:
    query = {"fieldManager": manager, "fieldValidation": "Strict"}
    return query | {"dryRun": "All"} if dry_run else query


def _typed(kind: Kind, obj: Object) -> Object:
    return {"apiVersion": kind.api_version, "kind": kind.kind, **obj}


def _applied(kind: Kind, obj: Object, subresource: Subresource) -> Object:
    """Return the body of an apply: without managedFields, which it must not have; of a Scale only the replicas."""
    metadata = {field: value for field, value in obj["metadata"].items() if field != "managedFields"}
    if subresource == "scale":
        replicas = (obj.get("spec") or {}).get("replicas")
        named = {field: metadata[field] for field in ("name", "namespace") if field in metadata}
        return {**SCALE, "metadata": named, "spec": {"replicas": replicas}}
    return {**_typed(kind, obj), "metadata": metadata}


def _is_conditional(patch: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> bool:
    if isinstance(patch, Mapping):
        metadata = patch.get("metadata")
        return isinstance(metadata, Mapping) and bool(metadata.get("resourceVersion"))
    return any(operation.get("op") == "test" for operation in patch)


def _body(kind: Kind, value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise Invalid(str(kind), [FieldError("", f"it is not JSON: {exc}")]) from exc


def collection_path(kind: Kind, namespace: str | None) -> str:
    """Return the path of all objects of a kind, or of those in one namespace.

    Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-uris
    """
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    if not kind.namespaced or namespace is None:
        return f"{root}/{kind.plural}"
    return f"{root}/namespaces/{_segment(kind, 'metadata.namespace', namespace)}/{kind.plural}"


def object_path(kind: Kind, name: str, namespace: str, subresource: Subresource = "") -> str:
    """Return the path of an object or its subresource. Raises Invalid for a name that is not a path segment."""
    path = f"{collection_path(kind, namespace)}/{_segment(kind, 'metadata.name', name)}"
    return f"{path}/{subresource}" if subresource else path


def _segment(kind: Kind, field: str, text: str) -> str:
    if text in _NO_SEGMENTS:
        raise Invalid(str(kind), [FieldError(field, f"{text!r} is not a name" if text else "it is required")])
    return quote(text, safe="")
