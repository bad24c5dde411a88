"""Consistent lists in pages, and in one request when the snapshot of the pages expires."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clusters.base.api import ObjectList, Trim, trimmed
from clusters.base.errors import Gone, Unavailable
from clusters.base.objects import Kind, Object
from clusters.kubernetes.transport import ApiRequest, Transport

PAGE = 500
"""Objects in a page, the default of kubectl and client-go."""


async def list_all(
    transport: Transport, kind: Kind, request: ApiRequest, page: int = PAGE, trim: Trim | None = None
) -> ObjectList:
    """Return all objects of a collection at one version.

    If the snapshot of the first page expires before the last page (410), read everything in one request, as client-go
    does. Raises the errors of the cluster.
    """
    try:
        return await _in_pages(transport, kind, request, page, trim)
    except Gone:
        answer = await transport.call(request)
        return ObjectList(_items(kind, answer, trim), str(_metadata(request, answer).get("resourceVersion", "")))


async def _in_pages(transport: Transport, kind: Kind, request: ApiRequest, page: int, trim: Trim | None) -> ObjectList:
    query = {**request.query, "limit": str(page)}
    items: list[Object] = []
    token = None
    while True:
        answer = await transport.call(replace(request, query={**query, "continue": token} if token else query))
        metadata = _metadata(request, answer)
        items += _items(kind, answer, trim)
        token = str(metadata.get("continue") or "")
        if not token:
            return ObjectList(items, str(metadata.get("resourceVersion", "")))


def _items(kind: Kind, answer: Any, trim: Trim | None) -> list[Object]:
    items = [_typed(kind, item) for item in answer.get("items") or ()]
    return items if trim is None else trimmed(items, trim)


def _metadata(request: ApiRequest, answer: Any) -> dict[str, Any]:
    metadata = answer.get("metadata") if isinstance(answer, dict) else None
    if not isinstance(metadata, dict):
        raise Unavailable(f"{request.what}: the response is not a list: try again")
    return metadata


def _typed(kind: Kind, item: Object) -> Object:
    """Return an item with apiVersion and kind, which lists of built-in kinds omit."""
    if "kind" not in item:
        item["apiVersion"], item["kind"] = kind.api_version, kind.kind
    return item
