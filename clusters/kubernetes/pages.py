"""A consistent list in pages, and what to do when its snapshot expires half way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clusters.base.api import ObjectList
from clusters.base.errors import Gone, Unavailable
from clusters.base.objects import Kind, Object
from clusters.kubernetes.transport import Request, Transport

PAGE = 500
"""Objects in a page, as kubectl and client-go have it."""


async def list_all(transport: Transport, kind: Kind, request: Request, page: int = PAGE) -> ObjectList:
    """All objects of the collection at one version.

    When the snapshot of the first page is gone before the last one was read (410), everything is read anew at once,
    without pages, as client-go does. Raises the cluster's errors.
    """
    try:
        return await _in_pages(transport, kind, request, page)
    except Gone:
        return _snapshot(kind, request, [await transport.call(request)])


async def _in_pages(transport: Transport, kind: Kind, request: Request, page: int) -> ObjectList:
    query = {**request.query, "limit": str(page)}
    answers = [await transport.call(replace(request, query=query))]
    while token := _metadata(request, answers[-1]).get("continue"):
        answers.append(await transport.call(replace(request, query={**query, "continue": str(token)})))
    return _snapshot(kind, request, answers)


def _snapshot(kind: Kind, request: Request, answers: list[Any]) -> ObjectList:
    items = [_typed(kind, item) for answer in answers for item in answer.get("items") or ()]
    return ObjectList(items, str(_metadata(request, answers[-1]).get("resourceVersion", "")))


def _metadata(request: Request, answer: Any) -> dict[str, Any]:
    metadata = answer.get("metadata") if isinstance(answer, dict) else None
    if not isinstance(metadata, dict):
        raise Unavailable(f"{request.what}: the answer is no list: try again")
    return metadata


def _typed(kind: Kind, item: Object) -> Object:
    """Items of built-in lists come without what they are."""
    if "kind" not in item:
        item["apiVersion"], item["kind"] = kind.api_version, kind.kind
    return item
